import importlib.util
import json
from pathlib import Path

import polib
import pytest

from xlm.corpora import normalised as normalised_module
from xlm.corpora.fold import pair_key
from xlm.corpora.manifest import Manifest
from xlm.corpora.normalised import normalised_corpus, without_text_lines
from xlm.corpora.store import document_languages, pair_names, read_documents, read_pairs
from xlm.errors import UserError
from xlm.runs.stage import read_record

specification = importlib.util.spec_from_file_location("corpora_wheels", Path(__file__).with_name("wheels.py"))
wheels = importlib.util.module_from_spec(specification)
specification.loader.exec_module(wheels)


def entry(english, german):
    return polib.POEntry(msgid=english, msgstr=german)


@pytest.fixture
def manifest(tmp_path):
    entries = [
        entry("_Open the %s file…", "Die Datei %s ö_ffnen…"),
        entry("Open the %s file!", "Datei öffnen: %s"),
        entry("OpenStreetMap", "OpenStreetMap"),
        entry("device_class", "Geräteklasse"),
        entry("Settings", "Настройки"),
        entry("<b></b>", "Fett"),
        entry("Open the %d file!", "Datei öffnen: %d"),
    ]
    path = wheels.write_wheel(tmp_path / "cache/wheels", "texts", "1.0", {"p/de.po": str(wheels.catalogue(entries))})
    (tmp_path / "prose.txt").write_text("Wale sind Säugetiere.  Sie leben im Meer.\n", encoding="utf-8")
    (tmp_path / "de.txt").write_text("Guten Morgen\n", encoding="utf-8")
    (tmp_path / "en.txt").write_text("Good  morning\n", encoding="utf-8")
    return Manifest.model_validate(
        {
            "sources": [
                {
                    "name": "texts", "kind": "wheel", "version": "1.0", "licence": "MIT", "homepage": "-", "sha256": wheels.sha256(path),
                    "languages": {"de": "de"},
                    "format": {"kind": "gettext", "members": ["p/{language}.po"], "access_key": "underscore"},
                },
                {
                    "name": "prose", "kind": "files", "licence": "own", "paths": [tmp_path / "prose.txt"], "format": {"kind": "text"},
                    "language": "de",
                },
                {
                    "name": "lines", "kind": "parallel_lines", "licence": "own", "source": tmp_path / "de.txt",
                    "target": tmp_path / "en.txt", "source_language": "de", "target_language": "en",
                },
            ]
        }
    )  # fmt: skip


def test_everything_is_read_normalised_and_counted(manifest, tmp_path):
    folder = normalised_corpus(manifest, tmp_path / "run/normalised", tmp_path / "cache")
    pairs = list(read_pairs(folder, "en_de"))
    assert [(pair.source, pair.target) for pair in pairs] == [
        ("Open the … file", "Die Datei … öffnen"),
        ("Open the … file!", "Datei öffnen:"),
    ]
    assert {pair.key for pair in pairs} == {pair_key("open the file")}
    (other_way,) = read_pairs(folder, "de_en")
    assert (other_way.source, other_way.target, other_way.key) == ("Guten Morgen", "Good morning", pair_key("good morning"))
    (prose,) = read_documents(folder, "de")
    assert prose.text == "Wale sind Säugetiere. Sie leben im Meer."
    assert prose.sentence_starts == (0, 22)
    assert prose.id == "prose:prose.txt:1"
    english = list(read_documents(folder, "en"))
    assert [one.text for one in english] == ["Open the … file", "Open the … file!", "OpenStreetMap", "Settings"]
    assert all(one.sentence_starts is None for one in english)
    assert document_languages(folder) == ["de", "en"]
    assert pair_names(folder) == ["de_en", "en_de"]
    summary = read_record(folder).summary
    assert summary["kept"] == {"de": 1, "de_en": 1, "en": 4, "en_de": 2}
    assert summary["without_text"] == {}
    assert summary["dropped"] == {
        "de": {
            "texts": {
                "empty (source)": 1,
                "identical to the source": 1,
                "mostly syntax (source)": 1,
                "repeated in its source": 1,
                "wrong script": 1,
            }
        },
        "en": {"texts": {"empty": 1, "mostly syntax": 1, "repeated in its source": 1}},
    }


def test_every_record_is_kept_or_counted(manifest, tmp_path):
    folder = normalised_corpus(manifest, tmp_path / "run/normalised", tmp_path / "cache")
    summary = read_record(folder).summary
    kept = sum(summary["kept"].values())
    dropped = sum(count for sources in summary["dropped"].values() for reasons in sources.values() for count in reasons.values())
    assert kept + dropped == 7 + 7 + 1 + 1  # pairs and English texts of the catalogue, prose, lines


def test_it_is_done_once_until_an_input_changes(manifest, tmp_path, monkeypatch):
    folder = normalised_corpus(manifest, tmp_path / "run/normalised", tmp_path / "cache")
    calls = []
    real = normalised_module.read_source
    monkeypatch.setattr(normalised_module, "read_source", lambda *arguments: calls.append(arguments[0].name) or real(*arguments))
    normalised_corpus(manifest, folder, tmp_path / "cache")
    assert calls == []
    (tmp_path / "prose.txt").write_text("Delfine auch.\n", encoding="utf-8")
    normalised_corpus(manifest, folder, tmp_path / "cache")
    assert calls == ["texts", "prose", "lines"]
    assert [one.text for one in read_documents(folder, "de")] == ["Delfine auch."]


def test_a_failure_leaves_no_folder(manifest, tmp_path):
    (tmp_path / "en.txt").write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(UserError, match="differ in length"):
        normalised_corpus(manifest, tmp_path / "run/normalised", tmp_path / "cache")
    assert not (tmp_path / "run/normalised").exists()


def test_a_manifest_without_usable_text_is_one_sentence(tmp_path):
    (tmp_path / "x.jsonl").write_text(json.dumps({"text": "12"}) + "\n", encoding="utf-8")
    source = {
        "name": "x",
        "kind": "files",
        "licence": "own",
        "paths": [tmp_path / "x.jsonl"],
        "format": {"kind": "jsonl"},
        "language": "de",
    }
    with pytest.raises(UserError, match="no usable text"):
        normalised_corpus(Manifest.model_validate({"sources": [source]}), tmp_path / "n", tmp_path / "cache")


def test_a_source_or_language_that_gives_nothing_is_named(manifest, tmp_path):
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    (tmp_path / "digits.txt").write_text("12\n", encoding="utf-8")
    declared = manifest.model_dump(mode="json")
    declared["sources"][0]["languages"]["el"] = "de"  # German for Greek: all of it is in the wrong script
    for name in ("empty", "digits"):
        declared["sources"].append(
            {
                "name": name, "kind": "files", "licence": "own", "paths": [str(tmp_path / f"{name}.txt")], "format": {"kind": "text"},
                "language": "yo",
            }
        )  # fmt: skip
    folder = normalised_corpus(Manifest.model_validate(declared), tmp_path / "run/normalised", tmp_path / "cache")
    without_text = read_record(folder).summary["without_text"]
    assert without_text == {"texts": ["el"], "empty": ["yo"], "digits": ["yo"]}
    assert sorted(without_text_lines(without_text)) == [
        "source 'digits' (yo) gave no text",
        "source 'empty' (yo) gave no text",
        "source 'texts' (el) gave no text",
    ]
