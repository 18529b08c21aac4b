import pytest

from xlm.tasks.sampling import Slot
from xlm.tasks.slots import slot_names, tag_words


def slots(text, **values):
    return tuple(Slot(text.index(value), text.index(value) + len(value), name) for name, value in values.items())


@pytest.mark.parametrize(
    ("text", "values", "tags"),
    [
        ("turn on the desk lamp now", {"name": "desk lamp"}, "O O O B-name I-name O"),
        ("desk lamp kitchen", {"name": "desk lamp", "area": "kitchen"}, "B-name I-name B-area"),
        ("allume l'entrée", {"area": "entrée"}, "O B-area"),
        ("küchenlicht an", {"area": "küche"}, "O O"),
        ("wohnzimmerlicht an", {"area": "wohnzimmer"}, "B-area O"),
        ("打开厨房灯", {"area": "厨房"}, "O O B-area I-area O"),
        ("to fifty %", {"value": "fifty %"}, "O B-value"),
        ("hello", {}, "O"),
        ("", {}, ""),
    ],
)
def test_words_are_tagged_by_most_of_their_characters(text, values, tags):
    assert " ".join(tag_words(text, slots(text, **values))) == tags


def test_neighbouring_slots_of_one_name_are_two():
    text = "lamp radio"
    assert tag_words(text, (Slot(0, 4, "name"), Slot(5, 10, "name"))) == ("B-name", "B-name")
    assert slot_names(["O", "B-name", "I-name", "B-area"]) == {"name", "area"}
