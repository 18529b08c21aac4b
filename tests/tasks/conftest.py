"""A small package of sentence templates and a small corpus, written as the real ones are."""

import json
import zipfile
from pathlib import Path

import pytest

from xlm.corpora.documents import SentencePair, pair_name
from xlm.corpora.fold import pair_key
from xlm.corpora.store import write_pairs

ENGLISH_GRAMMAR = {
    "language": "en",
    "intents": {
        "TurnOn": {
            "data": [
                {"sentences": ["<turn> on [the] {name}", "(switch|put) {name} on[ please]", "light up [the] {area}", "{name} on now"]},
                {"sentences": ["start [the] {name} [in [the] {area}]", "start [the] {name} [in [the] {area}]"]},
            ]
        },
        "SetBrightness": {
            "data": [{"sentences": ["set [the] {area} to {brightness}[ ]%", "dim {area} by {5..50,5:brightness}", "make it {level}?"]}]
        },
        "Announce": {"data": [{"sentences": ["(say|announce) {message}"]}]},
        "AddItem": {"data": [{"sentences": ["add {shopping_list_item};to my list", "what's on my list", "open {name}"]}]},
        "Open": {"data": [{"sentences": ["open {name}", "raise [the] {name}"]}]},
    },
    "lists": {
        "brightness": {"range": {"from": 0, "to": 100}},
        "level": {"values": [{"in": "(max|maximum)", "out": 100}, {"in": "min[imum]", "out": 1}]},
        "message": {"wildcard": True},
        "shopping_list_item": {"wildcard": True},
    },
    "expansion_rules": {"turn": "(turn|switch|<make>)", "make": "make"},
}
GERMAN_GRAMMAR = {
    "language": "de",
    "intents": {
        "TurnOn": {"data": [{"sentences": ["schalte [die] {name} ein", "mach {name} an", "{name} an!", "{name} bitte an", "{name} los"]}]},
        "Open": {"data": [{"sentences": ["öffne {name}", "mach {unknown_slot} auf"]}]},
        "OnlyInGerman": {"data": [{"sentences": ["feierabend"]}]},
    },
    "lists": {},
    "expansion_rules": {},
}
CHINESE_GRAMMAR = {
    "language": "zh-CN",
    "settings": {"ignore_whitespace": True},
    "intents": {"TurnOn": {"data": [{"sentences": ["打开 {name}", "请 [把] {name} 打开。"]}]}},
    "lists": {},
    "expansion_rules": {},
}


@pytest.fixture
def intents_wheel(tmp_path: Path) -> Path:
    path = tmp_path / "home_assistant_intents-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for grammar in (ENGLISH_GRAMMAR, GERMAN_GRAMMAR, CHINESE_GRAMMAR):
            archive.writestr(f"home_assistant_intents/data/{grammar['language']}.json", json.dumps(grammar))
    return path


def _pairs(language: str) -> list[SentencePair]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = [f"{a}{b}{a}lamp" for a in letters for b in letters]
    words = [(name, f"{name}{'灯' if language == 'zh-Hans' else 'leuchte'}") for name in names]
    rooms = [("Kitchen", "Küche"), ("Bedroom", "Schlafzimmer"), ("Office", "Büro")]
    phrases = [(f"please check the {name} again", f"{name} bitte noch einmal prüfen {language}") for name in names]
    return [
        SentencePair(pair_key(source), source, target, "en", language, "homeassistant") for source, target in [*words, *rooms, *phrases]
    ]


@pytest.fixture
def normalised(tmp_path: Path) -> Path:
    folder = tmp_path / "normalised"
    for language in ("de", "zh-Hans"):
        write_pairs(folder, pair_name("en", language), _pairs(language))
    return folder
