import subprocess

import pytest
import yaml

from xlm.runs.stage import Stage
from xlm.tracking.run_card import RunCard, add_git_state, run_card


def git(folder, *arguments):
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "code"
    folder.mkdir()
    git(folder, "init", "-b", "trunk")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    return folder


def state_of(folder):
    card = RunCard()
    add_git_state(card, folder)
    return card


def test_a_clean_repository_is_its_commit(repository):
    card = state_of(repository)
    head = subprocess.run(["git", "-C", str(repository), "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    assert card.tags == {"mlflow.source.git.commit": head.strip(), "mlflow.source.git.branch": "trunk", "git.dirty": "false"}
    assert card.texts == {}


def test_uncommitted_changes_are_attached_unless_they_are_large(repository, monkeypatch):
    (repository / "a.txt").write_text("two\n")
    (repository / "new.txt").write_text("unknown\n")
    card = state_of(repository)
    assert card.tags["git.dirty"] == "true"
    assert "-one\n+two\n" in card.texts["git/changes.diff"]
    assert "?? new.txt" in card.texts["git/status.txt"]
    monkeypatch.setattr("xlm.tracking.run_card.DIFF_BYTES", 10)
    card = state_of(repository)
    assert "git/changes.diff" not in card.texts
    assert card.tags["git.diff"].startswith("left out, ")


def test_no_repository_and_no_git_are_no_state(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert state_of(tmp_path).tags == {}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert state_of(tmp_path).tags == {}


def test_a_card_has_recipe_data_vocabulary_and_environment(tmp_path):
    with Stage(tmp_path / "run" / "vocabulary", "vocabulary", {"corpus": "c"}).write() as output:
        (output.folder / "coverage.json").write_text("{}")
        (output.folder / "spm.model").write_bytes(b"\xff\xfe")
    (tmp_path / "manifest.yaml").write_text("sources: []\n")
    recipe = {"name": "n", "languages": ["zh-Hans"]}
    card = run_card(tmp_path / "run", recipe=recipe, manifest=tmp_path / "manifest.yaml", deepspeed={"zero_optimization": {"stage": 1}})
    assert yaml.safe_load(card.texts["recipe.yaml"]) == recipe
    assert card.texts["manifest.yaml"] == "sources: []\n"
    assert {"stages/vocabulary/stage.json", "stages/vocabulary/coverage.json"} <= set(card.texts)
    assert not any("spm" in name or "shards" in name for name in card.texts)
    assert f"numpy=={card.tags['version.numpy']}\n" in card.texts["environment.txt"]
