import importlib.util
import json
import pickle
from pathlib import Path

import polib
import pytest

from xlm.corpora.drops import DropCounts
from xlm.corpora.manifest import Manifest
from xlm.corpora.readers.source import read_source
from xlm.corpora.records import RawPair, RawText

specification = importlib.util.spec_from_file_location("corpora_wheels", Path(__file__).parents[1] / "wheels.py")
wheels = importlib.util.module_from_spec(specification)
specification.loader.exec_module(wheels)


def wheel_source(path, layout, **changes):
    return {
        "name": "texts", "kind": "wheel", "version": "1.0", "licence": "MIT", "homepage": "-",
        "sha256": wheels.sha256(path), "languages": {"en": "en", "de": "de"}, "format": layout,
    } | changes  # fmt: skip


@pytest.mark.parametrize("kind", ["gettext", "json_catalogues", "cldr", "wiki_summaries", "files", "parallel_lines"])
def test_every_declared_kind_has_its_reader(tmp_path, kind):
    cache = tmp_path / "cache"
    members = {
        "p/de.po": str(wheels.catalogue([polib.POEntry(msgid="Water", msgstr="Wasser")])),
        "p/en.json": json.dumps({"a": "Water"}),
        "p/de.json": json.dumps({"a": "Wasser"}),
        "c/en.dat": pickle.dumps({"languages": {"de": "Water"}}),
        "c/de.dat": pickle.dumps({"languages": {"de": "Wasser"}}),
        "w/en.json": json.dumps({"Water": {"extract": "Water"}}),
        "w/de.json": json.dumps({"Wasser": {"extract": "Wasser"}}),
    }
    path = wheels.write_wheel(cache / "wheels", "texts", "1.0", members)
    (tmp_path / "en.txt").write_text("Water\n", encoding="utf-8")
    (tmp_path / "de.txt").write_text("Wasser\n", encoding="utf-8")
    source = {
        "gettext": wheel_source(path, {"kind": "gettext", "members": ["p/{language}.po"]}, languages={"de": "de"}),
        "json_catalogues": wheel_source(path, {"kind": "json_catalogues", "members": "p/{language}.json"}),
        "cldr": wheel_source(path, {"kind": "cldr", "members": "c/{language}.dat"}),
        "wiki_summaries": wheel_source(path, {"kind": "wiki_summaries", "members": "w/{language}.json"}),
        "files": {
            "name": "f", "kind": "files", "licence": "own", "paths": [tmp_path / "de.txt"], "format": {"kind": "text"}, "language": "de",
        },
        "parallel_lines": {
            "name": "l", "kind": "parallel_lines", "licence": "own", "source": tmp_path / "en.txt", "target": tmp_path / "de.txt",
            "source_language": "en", "target_language": "de",
        },
    }[kind]  # fmt: skip
    manifest = Manifest.model_validate({"sources": [source]})
    records = list(read_source(manifest.sources[0], cache, DropCounts()))
    texts = {one.text for one in records if isinstance(one, RawText)} | {one.target for one in records if isinstance(one, RawPair)}
    assert "Wasser" in texts
