"""What goes into a template's open slots: room names and catalogue strings of the same language.

The package leaves open what a home is like (which rooms, which devices, which items stand on a list).
Names come from the translation catalogues, where the same name exists in many languages, so that a
sentence's slots speak its own language. Every slot has a share of the catalogue keys to itself: no string
that fills an area can fill a device name, in any language. And every English string belongs to training or to
dev and test, with its translations, so that no slot is filled in a test as it was in training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import regex

from xlm.corpora.documents import SentencePair
from xlm.corpora.fold import fold
from xlm.seeding import key_int64

# English names of places, looked up in the catalogues for their translations.
ROOMS = frozenset(
    [
        *("attic", "balcony", "basement", "bathroom", "bedroom", "cellar", "dining room", "garage", "garden", "guest room", "hall"),
        *("hallway", "kitchen", "laundry room", "library", "living room", "office", "pool", "room", "school", "terrace", "workshop"),
    ]
)
# English last words of names that could be a device's ("garage door sensor"). Left out: light, fan, timer, vacuum
# and the like, which name what an intent is about and would give it away.
DEVICES = frozenset(
    [
        *("adapter", "alarm", "amplifier", "battery", "boiler", "camera", "charger", "computer", "conditioner", "controller"),
        *("dehumidifier", "detector", "device", "dishwasher", "display", "doorbell", "dryer", "freezer", "fridge", "gateway"),
        *("generator", "heater", "heating", "hub", "humidifier", "inverter", "kettle", "lamp", "machine", "meter", "microwave"),
        *("monitor", "motor", "oven", "outlet", "panel", "phone", "player", "plug", "printer", "projector", "pump", "purifier"),
        *("radio", "receiver", "refrigerator", "remote", "robot", "router", "screen", "sensor", "siren", "socket", "speaker"),
        *("sprinkler", "switch", "system", "tablet", "tank", "television", "thermostat", "tv", "valve", "ventilation", "washer"),
    ]
)
MOST_DEVICE_WORDS = 3
# With fewer the slot is filled up from its share of the other keys.
FEWEST_ROOMS, FEWEST_DEVICES = 3, 20

_NAME = regex.compile(r"[\p{L}\p{M}]+(?:[ '’\-][\p{L}\p{M}]+)*")


@dataclass(frozen=True)
class SlotKind:
    """What may fill a slot: how many English words the string has, and how many strings are kept."""

    fewest_words: int
    most_words: int
    size: int


# Order matters: it fixes which share of the keys a slot owns.
SLOTS: Mapping[str, SlotKind] = {
    "name": SlotKind(1, 2, 200),
    "area": SlotKind(1, 2, 40),
    "floor": SlotKind(1, 1, 20),
    "zone": SlotKind(1, 2, 40),
    "timer_name": SlotKind(1, 1, 60),
    "shopping_list_item": SlotKind(1, 2, 100),
    "todo_list_item": SlotKind(2, 4, 100),
    "timer_command": SlotKind(2, 4, 100),
    "search_query": SlotKind(1, 3, 100),
    "message": SlotKind(3, 6, 100),
}
_MOST_TARGET_WORDS = 7
_MOST_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class CatalogueName:
    """A short catalogue string in one language, by the key and the folded form of its English."""

    key: str
    english: str
    text: str


def catalogue_names(pairs: Iterable[SentencePair], *, english: bool = False) -> list[CatalogueName]:
    """Keep the pairs that could name something: letters only, short, translated; one text a key.

    With ``english`` the names are the English sides, for the English sentences.
    """
    names: dict[str, CatalogueName] = {}
    for pair in pairs:
        text = pair.source if english else pair.target
        if pair.key in names or len(pair.source) > _MOST_CHARACTERS or len(text) > _MOST_CHARACTERS:
            continue
        if not _NAME.fullmatch(pair.source) or not _NAME.fullmatch(text) or text.count(" ") >= _MOST_TARGET_WORDS:
            continue
        folded = fold(pair.source)
        if english or fold(pair.target) != folded:
            names[pair.key] = CatalogueName(pair.key, folded, text)
    return list(names.values())


@dataclass(frozen=True)
class FillerHalves:
    """Texts by slot name for training, and others, of other English strings, for dev and test."""

    train: Mapping[str, tuple[str, ...]]
    test: Mapping[str, tuple[str, ...]]


def filler_halves(names: Sequence[CatalogueName], seed: int) -> FillerHalves:
    """Split the names by their English and build the fillers of each half."""
    halves: tuple[list[CatalogueName], list[CatalogueName]] = ([], [])
    for name in names:
        halves[key_int64(seed, "filler half", name.english) % 2].append(name)
    train, test = halves
    # One text may translate strings of both halves ("Lampe": lamp, light): no test has it.
    trained = {name.text.casefold() for name in train}
    return FillerHalves(build_fillers(train, seed), build_fillers([name for name in test if name.text.casefold() not in trained], seed))


def build_fillers(names: Sequence[CatalogueName], seed: int) -> dict[str, tuple[str, ...]]:
    """Return texts by slot name: rooms and devices by their English names, the rest by a keyed draw over the keys.

    The order over keys is the same in every language, so two languages share as many names as their
    catalogues do. Areas and names that the catalogues hardly have are filled up from the slot's own share.
    """
    shares: dict[str, list[str]] = {slot: [] for slot in SLOTS}
    rooms: dict[str, str] = {}
    devices: list[str] = []
    slots = tuple(SLOTS)
    for name in sorted(names, key=lambda name: (key_int64(seed, "filler order", name.key), name.key)):
        words = name.english.split(" ")
        slot = slots[key_int64(seed, "filler slot", name.key) % len(slots)]
        if name.english in ROOMS:
            rooms.setdefault(name.english, name.text)
        elif words[-1] in DEVICES:
            devices += [name.text] if len(words) <= MOST_DEVICE_WORDS else []
        elif SLOTS[slot].fewest_words <= len(words) <= SLOTS[slot].most_words:
            shares[slot].append(name.text)
    found = [rooms[room] for room in sorted(rooms)]
    shares["area"] = found if len(found) >= FEWEST_ROOMS else found + shares["area"]
    shares["name"] = devices if len(devices) >= FEWEST_DEVICES else devices + shares["name"]
    return {slot: tuple(dict.fromkeys(shares[slot]))[: SLOTS[slot].size] for slot in slots}
