"""The corpus stage, run as a user runs it, on a small manifest of local files and a wheel made here."""

import hashlib
import json
import runpy
import sys
import zipfile
from pathlib import Path

import pytest

from xlm.corpora.held_out import HeldOutText
from xlm.corpora.store import read_documents, read_pairs
from xlm.runs.stage import Stage

ROOT = Path(__file__).parents[2]
GERMAN = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
TEXTS = {"Open the file": "Datei öffnen", "Turn on the light": "Licht an", "Whales are mammals.": "Wale sind Säugetiere.", "%s": "%s"}


def write_wheel(path):
    entries = "".join(f'msgid "{english}"\nmsgstr "{german}"\n\n' for english, german in TEXTS.items())
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("p/de.po", GERMAN + entries)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the stage on the run folder and return its exit code and what it printed."""
    checksum = write_wheel(tmp_path / "cache/wheels/texts-1.0-py3-none-any.whl")
    (tmp_path / "prose.txt").write_text("Die Sonne scheint. Es ist warm.\nLicht an!\n", encoding="utf-8")
    (tmp_path / "manifest.yaml").write_text(
        f"""sources:
  - {{name: texts, kind: wheel, version: "1.0", sha256: {checksum}, licence: MIT, homepage: "-", languages: {{de: de}},
     format: {{kind: gettext, members: ["p/{{language}}.po"]}}}}
  - {{name: prose, kind: files, licence: own, paths: [{tmp_path / "prose.txt"}], language: de, format: {{kind: text}}}}
""",
        encoding="utf-8",
    )
    monkeypatch.setenv("XLM_CACHE", str(tmp_path / "cache"))

    def run(*overrides):
        settings = [f"corpora.manifest={tmp_path / 'manifest.yaml'}", *overrides]
        recipe = ROOT / "pipelines" / "recipes" / "quickstart.yaml"
        argv = ["build_corpus.py", "--recipe", str(recipe), "--run-dir", str(tmp_path / "run")]
        monkeypatch.setattr(sys, "argv", argv + [part for setting in settings for part in ("--set", setting)])
        code = 0
        try:
            runpy.run_path(str(ROOT / "pipelines" / "build_corpus.py"), run_name="__main__")
        except SystemExit as error:
            code = error.code
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def test_a_manifest_becomes_a_corpus_once(run, tmp_path):
    code, printed = run("tasks=null")
    assert code == 0, printed
    corpus = tmp_path / "run/corpus"
    assert [one.source for one in read_pairs(corpus, "en_de")] == [text for text in TEXTS if text != "%s"]
    assert [one.text for one in read_documents(corpus, "de")][:2] == ["Die Sonne scheint. Es ist warm.", "Licht an!"]
    summary = json.loads((corpus / "summary.json").read_text(encoding="utf-8"))
    assert summary["pairs"] == {"en_de": 3}
    assert summary["languages"]["de"]["documents"] == 4
    assert summary["dropped"]["de"]["texts"] == {"empty (source)": 1}
    assert "empty (source)" in printed
    assert "already done" in run("tasks=null")[1]


def test_a_source_without_text_is_named_in_print_and_summary(run, tmp_path):
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    with (tmp_path / "manifest.yaml").open("a", encoding="utf-8") as stream:
        stream.write(
            f"  - {{name: b, kind: files, licence: own, paths: [{tmp_path / 'empty.txt'}], language: yo, format: {{kind: text}}}}\n"
        )
    code, printed = run("tasks=null")
    assert code == 0, printed
    assert "source 'b' (yo) gave no text\n" in printed
    assert json.loads((tmp_path / "run/corpus/summary.json").read_text(encoding="utf-8"))["without_text"] == {"b": ["yo"]}
    assert "source 'b' (yo) gave no text\n" in run("tasks=null")[1]


def test_held_out_text_is_kept_out_and_must_have_been_drawn(run, tmp_path):
    code, printed = run()
    assert code == 2
    assert "run pipelines/build_tasks.py with the same recipe first" in printed

    def draw(text):
        with Stage(tmp_path / "run/tasks", "tasks", {"text": text}).write() as output:
            HeldOutText.build([text]).save(output.folder / "held_out.npz")

    draw("turn on the light")
    code, printed = run()
    assert code == 0, printed
    assert [one.source for one in read_pairs(tmp_path / "run/corpus", "en_de")] == ["Open the file", "Whales are mammals."]
    draw("licht an")
    assert "already done" not in run()[1]
    assert "Licht an!" not in [one.text for one in read_documents(tmp_path / "run/corpus", "de")]


def test_the_limit_is_the_recipes(run, tmp_path):
    code, printed = run("tasks=null", "corpora.max_documents_per_language=2")
    assert code == 0, printed
    assert len(list(read_documents(tmp_path / "run/corpus", "de"))) == 2
    assert "over the limit of documents" in printed


def test_a_language_the_manifest_lacks_is_one_sentence(run):
    code, printed = run("tasks=null", "phases.0.languages=[en, de, sw]")
    assert code == 2
    assert "asks for sw, but the manifest" in printed
    assert "holds en, de" in printed
    assert "Traceback" not in printed
