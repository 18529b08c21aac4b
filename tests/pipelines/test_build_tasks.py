"""The stage as a user runs it, on local files and a wheel that is already in the cache."""

import json
import os
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from xlm.runs.fingerprint import file_sha256
from xlm.tasks.evaluation_sets import labelled_languages, load_record, load_retrieval

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "pipelines" / "recipes" / "smoke.yaml"
WHEEL = "home_assistant_intents-2026.1.1-py3-none-any.whl"
GRAMMARS = {
    "en": {"TurnOn": ["turn on {name}", "start {name}", "{name} on"], "Open": ["open {name}", "raise {name}"]},
    "de": {"TurnOn": ["schalte {name} ein", "{name} an"], "Open": ["öffne {name}"]},
}


def _lines(language):
    letters = "abcdefghijklmnopqrst"
    word = {"en": "please close the {} window now", "de": "bitte das Fenster {} jetzt schließen"}[language]
    name = {"en": "{} sensor", "de": "{}fühler"}[language]
    return [form.format(a + b + a + c) for a in letters for b in letters for form, c in ((word, "o"), (name, "e"))]


@pytest.fixture
def project_folder(tmp_path):
    wheels = tmp_path / "cache" / "wheels"
    wheels.mkdir(parents=True)
    with zipfile.ZipFile(wheels / WHEEL, "w") as archive:
        for language, intents in GRAMMARS.items():
            data = {label: {"data": [{"sentences": texts}]} for label, texts in intents.items()}
            content = json.dumps({"language": language, "intents": data})
            archive.writestr(f"home_assistant_intents/data/{language}.json", content)
    for language in ("en", "de"):
        (tmp_path / f"text.{language}").write_text("\n".join(_lines(language)) + "\n", encoding="utf-8")
    lines = {"name": "local", "kind": "parallel_lines", "licence": "CC0-1.0", "source": "text.en", "target": "text.de"}
    wheel = {
        "name": "home-assistant-intents",
        "kind": "wheel",
        "role": "task",
        "version": "2026.1.1",
        "sha256": file_sha256(wheels / WHEEL),
        "licence": "Apache-2.0",
        "homepage": "https://example.org",
        "languages": {"en": "en", "de": "de"},
    }
    manifest = {"sources": [{**lines, "source_language": "en", "target_language": "de"}, wheel]}
    (tmp_path / "manifest.yaml").write_text(yaml.safe_dump(manifest), encoding="utf-8")
    return tmp_path


def _run(folder, *arguments):
    settings = [f"--set=corpora.manifest={folder / 'manifest.yaml'}", "--set=tasks.languages=[en, de]", "--set=evaluation={}", *arguments]
    command = [sys.executable, str(ROOT / "pipelines" / "build_tasks.py"), "--recipe", str(RECIPE), "--run-dir", "run", *settings]
    environment = {**os.environ, "XLM_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_sets_are_drawn_once_and_again_when_the_recipe_changes(project_folder):
    first = _run(project_folder)
    assert first.returncode == 0, first.stderr
    tasks = project_folder / "run" / "tasks"
    record = load_record(tasks)
    assert labelled_languages(tasks, "intents") == ["de", "en"]
    assert len(load_retrieval(tasks, "de")) == record["retrieval"]["de"]["pool"] == 80
    assert {source["licence"] for source in record["sources"]} == {"Apache-2.0", "CC0-1.0"}
    assert "retrieval pools smaller than 400: de" in first.stdout
    made = json.loads((tasks / "stage.json").read_text(encoding="utf-8"))
    assert made["summary"]["labels"] == 2
    assert made["inputs"]["hassil"] == f"{version('hassil')}, unicode-rbnf {version('unicode-rbnf')}"

    second = _run(project_folder)
    assert second.returncode == 0
    assert "already done" in second.stdout
    third = _run(project_folder, "--set=tasks.seed=7")
    assert "already done" not in third.stdout
    assert load_record(tasks)["seed"] == 7


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("tasks.languages=[en, de, sw]", "asks for 'sw', which the corpus has no pairs with English for; it has de"),
        ("tasks=null", "no 'tasks' section"),
        ("tasks.languges=[en]", "unknown key 'tasks.languges' (did you mean 'languages'?)"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(project_folder, setting, message):
    done = _run(project_folder, f"--set={setting}")
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project_folder / "run" / "tasks").exists()


def test_a_language_without_templates_is_named_with_those_there_are(project_folder):
    manifest = yaml.safe_load((project_folder / "manifest.yaml").read_text(encoding="utf-8"))
    manifest["sources"][0]["target_language"] = "sw"
    (project_folder / "manifest.yaml").write_text(yaml.safe_dump(manifest), encoding="utf-8")
    done = _run(project_folder, "--set=tasks.languages=[en, sw]")
    assert done.returncode == 2
    assert "asks for 'sw', for which this package has no sentence templates; it has de, en" in done.stderr
