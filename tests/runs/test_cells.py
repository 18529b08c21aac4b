import sys
from pathlib import Path

import pytest

import xlm.runs.cells as cells
from xlm.runs.cells import FIRST_STAGES, SHARED, Cell, make_cell, make_shared, run_script
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


@pytest.mark.parametrize(("code", "expected"), [(3, 3), (-9, 1)])
def test_a_script_that_fails_ends_with_its_code(tmp_path, code, expected):
    script = tmp_path / "script.py"
    script.write_text(f"import os, signal, sys\nos.kill(os.getpid(), {-code}) if {code} < 0 else sys.exit({code})\n", encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        run_script(script, [])
    assert ended.value.code == expected


def test_a_script_that_ends_well_is_passed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nassert sys.argv[1:] == ['--x', '1']\nassert sys.executable == {sys.executable!r}\n", encoding="utf-8")
    run_script(script, ["--x", "1"])
