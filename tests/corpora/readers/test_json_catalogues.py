import importlib.util
import json
from pathlib import Path

import pytest

from xlm.corpora.manifest import JsonCataloguesFormat
from xlm.corpora.readers.json_catalogues import read_json_catalogues
from xlm.corpora.records import RawPair, RawText
from xlm.errors import UserError

specification = importlib.util.spec_from_file_location("corpora_wheels", Path(__file__).parents[1] / "wheels.py")
wheels = importlib.util.module_from_spec(specification)
specification.loader.exec_module(wheels)
LAYOUT = JsonCataloguesFormat(kind="json_catalogues", members="ha/components/*/translations/{language}.json")


def read(tmp_path, files, languages=("en", "de")):
    members = {
        f"ha/components/{name}.json": content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        for name, content in files.items()
    }
    return wheels.read_wheel(read_json_catalogues, LAYOUT, tmp_path, members, languages)


def test_nested_keys_pair_with_the_english_beside_them(tmp_path):
    files = {
        "light/translations/en": {"title": "Light", "state": {"on": "On", "off": "Off"}},
        "light/translations/de": {"title": "Licht", "state": {"on": "An", "gone": "Weg"}},
        "fan/translations/en": {"title": "Fan", "again": "Light"},
    }
    records, dropped = read(tmp_path, files)
    assert [(one.source, one.target) for one in records if isinstance(one, RawPair)] == [("Light", "Licht"), ("On", "An")]
    assert [one.text for one in records if isinstance(one, RawText)] == ["Fan", "Light", "On", "Off"]
    assert dropped == {"de": {"texts": {"no English beside it": 1}}}


def test_references_are_resolved_in_their_own_language_or_dropped_and_counted(tmp_path):
    english = {"a": "[%key:component::fan::b%]!", "c": "[%key:common::state::on%]", "d": "[%key:component::light::d%]"}
    german = {"a": "[%key:component::fan::b%]?", "c": "An"}
    files = {
        "light/translations/en": english,
        "light/translations/de": german,
        "fan/translations/en": {"b": "Speed"},
        "fan/translations/de": {"b": "Tempo"},
    }
    records, dropped = read(tmp_path, files)
    assert {(one.source, one.target) for one in records if isinstance(one, RawPair)} == {("Speed!", "Tempo?"), ("Speed", "Tempo")}
    assert dropped == {"en": {"texts": {"unresolved reference": 2}}}


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"a/translations/en": '{"x":\n oops}'}, r"a/translations/en\.json:2: not valid JSON"),
        ({"a/translations/en": {"x": 3}}, "'x' holds a int"),
        ({"a/translations/en": "[]"}, "a JSON object is expected"),
        ({"a/translations/de": {"x": "y"}}, "has no English files"),
        ({"a/translations/en": {"x": "y"}}, "has no files for 'de'"),
    ],
)
def test_files_that_are_not_translations_are_named(tmp_path, files, sentence):
    with pytest.raises(UserError, match=sentence):
        read(tmp_path, files)
