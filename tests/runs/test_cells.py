from pathlib import Path

import pytest

import xlm.runs.cells as cells
from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.errors import UserError
from xlm.runs.cells import FIRST_STAGES, SHARED, Cell, check_cells, make_cell, make_shared, run_script
from xlm.runs.folder import RunFolder
from xlm.runs.stage import Stage

RECIPE = Path("recipe.yaml")


def test_shared_stages_are_made_once_and_linked(tmp_path, monkeypatch):
    started = []

    def run(script, options):
        started.append((script.name, list(options)))
        root = Path(options[options.index("--run-dir") + 1])
        if root.name == "shared":
            for name in SHARED:
                if not (root / name).exists():
                    with Stage(root / name, name, {}).write():
                        pass
        return 0

    monkeypatch.setattr(cells, "run_script", run)
    base = make_shared(RECIPE, Path("pipelines"), tmp_path)
    cell = Cell(RECIPE, ("seed=2",), RunFolder(tmp_path / "one"))
    make_cell(cell, base, Path("pipelines"), "--until", "pretrain.py")
    assert [name for name, _ in started] == [*FIRST_STAGES, "quickstart.py"]
    assert started[-1][1] == ["--recipe", "recipe.yaml", "--set", "seed=2", "--run-dir", str(tmp_path / "one"), "--until", "pretrain.py"]
    assert (tmp_path / "one" / "vocabulary").resolve() == (tmp_path / "shared" / "vocabulary").resolve()
    assert not (tmp_path / "one" / "shards").exists()
    make_cell(Cell(RECIPE, (), RunFolder(tmp_path / "alone")), None, Path("pipelines"))
    assert not (tmp_path / "alone").exists()


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 3), (-9, 137)])
def test_the_exit_code_of_a_script_is_a_shells(tmp_path, code, expected):
    script = tmp_path / "script.py"
    script.write_text(f"import os, sys\nos.kill(os.getpid(), {-code}) if {code} < 0 else sys.exit({code})\n", encoding="utf-8")
    assert run_script(script, []) == expected


def test_shared_stages_that_fail_end_it(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "run_script", lambda script, options: 2)
    with pytest.raises(SystemExit) as ended:
        make_shared(RECIPE, Path("pipelines"), tmp_path)
    assert ended.value.code == 2


def test_a_cell_that_changes_what_is_shared_is_one_sentence():
    recipes = Path(__file__).parents[2] / "pipelines" / "recipes"
    base = load_config(Recipe, recipes / "quickstart.yaml")
    other = load_config(Recipe, recipes / "quickstart.yaml", ["seed=2", "model.layers=2"])
    check_cells(base, {"other": other}, RECIPE)
    for change, part in (("vocabulary=vocab/smoke.yaml", "vocabulary"), ("tasks.seed=3", "tasks"), ("corpora.manifest=x.yaml", "corpora")):
        with pytest.raises(UserError, match=f"recipe.yaml: 'other' changes {part}"):
            check_cells(base, {"other": load_config(Recipe, recipes / "quickstart.yaml", [change])}, RECIPE)
    limited = ["corpora.max_documents_per_language=10"]
    with pytest.raises(UserError, match=r"'other' has seed 2, and the recipe draws corpora\.max_documents"):
        check_cells(
            load_config(Recipe, recipes / "quickstart.yaml", limited),
            {"other": load_config(Recipe, recipes / "quickstart.yaml", [*limited, "seed=2"])},
            RECIPE,
        )
