"""The shared command line: recipe, overrides, run folder, cache."""

from pathlib import Path

import pytest

from xlm.errors import UserError
from xlm.runs.cli import cache_folder, parse_invocation, recipe_parser

RECIPE = Path(__file__).parents[2] / "pipelines" / "recipes" / "quickstart.yaml"


def parse(*arguments):
    return parse_invocation(recipe_parser("a test"), list(arguments))


def test_the_run_folder_is_named_after_the_recipe_unless_given():
    assert parse("--recipe", str(RECIPE)).folder.root == Path("runs/quickstart")
    assert parse("--recipe", str(RECIPE), "--run-dir", "x/y").folder.root == Path("x/y")


def test_overrides_repeat():
    recipe = parse("--recipe", str(RECIPE), "--set", "seed=9", "--set", "phases.0.steps=3").recipe
    assert (recipe.seed, recipe.phases[0].steps) == (9, 3)


def test_a_missing_recipe_is_a_sentence():
    with pytest.raises(UserError, match="does not exist"):
        parse("--recipe", "none.yaml")


def test_where_downloads_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XLM_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("XLM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "xlm"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "xlm"


def test_run_folders_that_cannot_be(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UserError, match="needs a folder where this file is"):
            parse("--recipe", str(RECIPE), "--run-dir", str(path))
    monkeypatch.chdir(tmp_path)
    for path in ("", ".", str(tmp_path)):
        with pytest.raises(UserError, match="working folder itself"):
            parse("--recipe", str(RECIPE), "--run-dir", path)
