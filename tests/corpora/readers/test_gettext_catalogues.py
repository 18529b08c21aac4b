import importlib.util
from pathlib import Path

import polib
import pytest

from xlm.corpora.archive import Archive
from xlm.corpora.drops import DropCounts
from xlm.corpora.manifest import GettextFormat, WheelSource
from xlm.corpora.readers.gettext_catalogues import read_gettext
from xlm.corpora.records import RawPair, RawText
from xlm.errors import UserError

specification = importlib.util.spec_from_file_location("corpora_wheels", Path(__file__).parents[1] / "wheels.py")
wheels = importlib.util.module_from_spec(specification)
specification.loader.exec_module(wheels)

ARABIC = "nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 && n%100<=99 ? 4 : 5;"


def read(tmp_path, members, languages, **layout):
    path = wheels.write_wheel(tmp_path, "texts", "1.0", members)
    layout = GettextFormat(kind="gettext", members=("p/{language}/*.*o",), **layout)
    source = WheelSource(
        name="texts", kind="wheel", version="1.0", licence="MIT", homepage="-", sha256="0a" * 32, languages=languages, format=layout
    )
    drops = DropCounts()
    with Archive(path) as archive:
        return list(read_gettext(source, layout, archive, drops)), drops.by_reason()


def pairs(records):
    return [(one.source, one.target) for one in records if isinstance(one, RawPair)]


def test_confirmed_translations_become_pairs_and_the_rest_is_counted(tmp_path):
    entries = [
        polib.POEntry(msgid="Open", msgstr="Öffnen"),
        polib.POEntry(msgid="Open", msgstr="Offen", msgctxt="state"),
        polib.POEntry(msgid="Guess", msgstr="Geraten", flags=["fuzzy"]),
        polib.POEntry(msgid="Not yet", msgstr=""),
        polib.POEntry(msgid="Old", msgstr="Alt", obsolete=True),
    ]
    records, dropped = read(tmp_path, {"p/de/x.po": str(wheels.catalogue(entries))}, {"de": "de"})
    assert pairs(records) == [("Open", "Öffnen"), ("Open", "Offen")]
    assert dropped == {"fuzzy": 1, "untranslated": 1, "obsolete": 1}
    english = [one.text for one in records if isinstance(one, RawText)]
    assert english == ["Open", "Guess", "Not yet"]


def test_compiled_catalogues_say_the_same(tmp_path):
    file = wheels.catalogue([polib.POEntry(msgid="Open", msgstr="Öffnen"), polib.POEntry(msgid="Shut", msgstr="Zu", msgctxt="door")])
    records, _ = read(tmp_path, {"p/de/x.mo": file.to_binary()}, {"de": "de"})
    assert sorted(pairs(records)) == [("Open", "Öffnen"), ("Shut", "Zu")]


def test_plurals_pair_one_with_one_and_many_with_many_by_the_languages_own_rule(tmp_path):
    def entry(*forms):
        return polib.POEntry(msgid="%d file", msgid_plural="%d files", msgstr_plural=dict(enumerate(forms)))

    members = {
        "p/ar/x.po": str(wheels.catalogue([entry("zero", "one", "two", "few", "many", "other")], ARABIC)),
        "p/ja/x.po": str(wheels.catalogue([entry("only")], "nplurals=1; plural=0;")),
        "p/de/x.po": str(wheels.catalogue([entry("Datei", "Dateien")], "nonsense")),
        "p/ru/x.po": str(wheels.catalogue([entry("", "", "")])),
    }
    records, dropped = read(tmp_path, members, {"ar": "ar", "ja": "ja", "de": "de", "ru": "ru"})
    found = {(one.target_language, one.source, one.target) for one in records if isinstance(one, RawPair)}
    assert found == {
        ("ar", "%d file", "one"),
        ("ar", "%d files", "few"),
        ("ja", "%d file", "only"),
        ("ja", "%d files", "only"),
        ("de", "%d file", "Datei"),
        ("de", "%d files", "Dateien"),
    }
    others = [one.text for one in records if isinstance(one, RawText) and one.language == "ar"]
    assert others == ["zero", "two", "many", "other"]
    assert [one.text for one in records if isinstance(one, RawText) and one.language == "en"] == ["%d file", "%d files"]
    assert dropped == {"untranslated": 1}


def test_english_in_comments_is_unescaped_and_joined(tmp_path):
    po = (
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        '#. Default: "Click \\"Browse\\" to "\n#. "choose a file."\nmsgid "help_browse"\nmsgstr "Datei wählen."\n\n'
        'msgid "Accessibility"\nmsgstr "Barrierefreiheit"\n'
    )
    records, _ = read(tmp_path, {"p/de/x.po": po}, {"de": "de"}, english="default_comment")
    assert pairs(records) == [('Click "Browse" to choose a file.', "Datei wählen."), ("Accessibility", "Barrierefreiheit")]


def test_a_language_without_a_catalogue_or_with_a_damaged_one_is_named(tmp_path):
    po = str(wheels.catalogue([polib.POEntry(msgid="a", msgstr="b")]))
    with pytest.raises(UserError, match=r"source 'texts' has no catalogue for 'zh-Hans' \(code 'zh_CN'"):
        read(tmp_path / "a", {"p/de/x.po": po}, {"zh-Hans": "zh_CN"})
    with pytest.raises(UserError, match=r"p/de/x\.mo: this catalogue is damaged"):
        read(tmp_path / "b", {"p/de/x.mo": b"\xde\x12\x04\x95 cut"}, {"de": "de"})
    with pytest.raises(UserError, match=r"p/de/x\.po: this catalogue is damaged"):
        read(tmp_path / "c", {"p/de/x.po": 'msgid "a"\nnonsense "b"\n'}, {"de": "de"})
    with pytest.raises(UserError, match="not valid UTF-8 in line 2"):
        read(tmp_path / "d", {"p/de/x.po": b'msgid "a"\nmsgstr "\xe4"\n'}, {"de": "de"})
