import importlib.util
import pickle
from pathlib import Path

import pytest

from xlm.corpora.manifest import CldrFormat
from xlm.corpora.readers.cldr import read_cldr
from xlm.corpora.records import RawPair, RawText
from xlm.errors import UserError

specification = importlib.util.spec_from_file_location("corpora_wheels", Path(__file__).parents[1] / "wheels.py")
wheels = importlib.util.module_from_spec(specification)
specification.loader.exec_module(wheels)
LAYOUT = CldrFormat(kind="cldr", members="babel/locale-data/{language}.dat")


class Called(Exception):  # noqa: N818  what a pickle of an attacker would have called
    pass


def called(*_):
    raise Called


class Attack:
    def __reduce__(self):
        return called, ("touch",)


def read(tmp_path, locales, languages=("en", "de")):
    members = {
        f"babel/locale-data/{name}.dat": locale if isinstance(locale, bytes) else pickle.dumps(locale) for name, locale in locales.items()
    }
    return wheels.read_wheel(read_cldr, LAYOUT, tmp_path, members, languages)


def test_names_pair_by_their_place(tmp_path):
    locales = {
        "en": {
            "languages": {"de": "German", "sw": "Swahili"},
            "days": {"format": {"wide": {0: "Monday"}, "abbreviated": {0: "Mon"}}},
            "unit_patterns": {"metre": {"long": {"one": "{0} metre", "other": "{0} metres"}, "short": {"other": "{0} m"}}},
            "date_fields": {"day": {"relative": {-1: "yesterday"}}, "day-short": {"relative": {-1: "yest."}}},
            "number_symbols": {"latn": {"decimal": "."}},
        },
        "de": {
            "languages": {"de": "Deutsch", "nds": "Niederdeutsch"},
            "days": {"format": {"wide": {0: "Montag"}, "abbreviated": {0: "Mo."}}},
            "unit_patterns": {"metre": {"long": {"one": "{0} Meter", "few": "{0} Metrer"}}},
            "date_fields": {"day": {"relative": {-1: "gestern"}}, "day-short": {"relative": {-1: "gest."}}},
            "number_symbols": {"latn": {"decimal": ","}},
        },
    }
    records, dropped = read(tmp_path, locales)
    assert {(one.source, one.target) for one in records if isinstance(one, RawPair)} == {
        ("German", "Deutsch"),
        ("Monday", "Montag"),
        ("yesterday", "gestern"),
        ("{0} metre", "{0} Meter"),
    }
    assert {one.text for one in records if isinstance(one, RawText)} == {
        *("German", "Swahili", "Monday", "yesterday"),
        *("{0} metre", "{0} metres"),
    }
    assert dropped == {"de": {"texts": {"no English beside it": 2}}}


def test_a_pickle_calls_nothing(tmp_path):
    with pytest.raises(Called):
        pickle.loads(pickle.dumps(Attack()))
    locale = {"languages": {"de": "German", "xx": Attack()}}
    records, _ = read(tmp_path, {"en": locale, "de": {"languages": {"de": "Deutsch", "xx": Attack()}}})
    assert [one.target for one in records if isinstance(one, RawPair)] == ["Deutsch"]


@pytest.mark.parametrize(
    ("locale", "sentence"),
    [(b"not a pickle", "locale is damaged"), (pickle.dumps(["German"]), "a dict of names"), (None, "has 0 files for 'de'")],
)
def test_a_locale_that_is_damaged_or_missing_is_a_sentence(tmp_path, locale, sentence):
    locales = {"en": {"languages": {"de": "German"}}}
    with pytest.raises(UserError, match=sentence):
        read(tmp_path, locales if locale is None else {**locales, "de": locale})
