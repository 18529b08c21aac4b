"""Every mistake in a YAML file is one sentence with file, line and a way out."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from xlm.config.strict import StrictModel, apply_override, load_config
from xlm.errors import UserError


class Cat(StrictModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(StrictModel):
    kind: Literal["dog"]
    bark_volume: float


class House(StrictModel):
    name: str
    rooms: Annotated[int, Field(ge=1)] = 1
    pets: tuple[Annotated[Cat | Dog, Field(discriminator="kind")], ...] = ()


def load(tmp_path, text, *overrides):
    path = tmp_path / "house.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_config(House, path, overrides)


def sentence(tmp_path, text, *overrides):
    with pytest.raises(UserError) as raised:
        load(tmp_path, text, *overrides)
    return str(raised.value).removeprefix(str(tmp_path) + "/")


def test_a_good_file_is_read_and_frozen(tmp_path):
    house = load(tmp_path, "name: home\npets:\n- {kind: dog, bark_volume: 2}\n")
    assert house.pets[0].bark_volume == 2.0
    with pytest.raises(ValueError, match="frozen"):
        house.name = "other"


def test_unknown_keys_name_their_line_and_the_nearest_key(tmp_path):
    assert sentence(tmp_path, "name: home\nroms: 3\n") == "house.yaml:2: unknown key 'roms' (did you mean 'rooms'?)."
    assert "house.yaml:4: unknown key 'pets.0.bark_volum' (did you mean 'bark_volume'?)" in sentence(
        tmp_path, "name: home\npets:\n- kind: dog\n  bark_volum: 3\n"
    )
    assert "allowed here: name, pets, rooms" in sentence(tmp_path, "name: home\nzzz: 3\n")


def test_missing_and_impossible_values(tmp_path):
    assert sentence(tmp_path, "rooms: 2\n") == "house.yaml: key 'name' is missing; add it."
    assert sentence(tmp_path, "name: home\nrooms: 0\n") == "house.yaml:2: 'rooms': Input should be greater than or equal to 1 (found 0)."
    assert "house.yaml:3" in sentence(tmp_path, "name: home\npets:\n- {kind: fish}\n")
    assert (
        sentence(tmp_path, "name: no\n") == "house.yaml:1: 'name': YAML reads this word as False; write it in quotes (\"no\" is Norwegian)."
    )


def test_files_that_are_not_what_they_should_be(tmp_path):
    assert "not valid YAML" in sentence(tmp_path, "name: [\n")
    assert sentence(tmp_path, "name: a\nname: b\n") == "house.yaml:2: key 'name' is given twice; keep one."
    assert "mapping" in sentence(tmp_path, "- a\n")
    assert "put the value in quotes" in sentence(tmp_path, "name: 2024-13-45\n")
    assert "not valid YAML" in sentence(tmp_path, "name: a\n", "name=2024-13-45")
    assert "not valid UTF-8 at byte 6" in sentence(tmp_path, b"name: \xff\n")
    with pytest.raises(UserError, match="does not exist"):
        load_config(House, tmp_path / "none.yaml")
    with pytest.raises(UserError, match="cannot be read"):
        load_config(House, tmp_path)


def test_overrides_reach_into_mappings_and_lists(tmp_path):
    text = "name: home\npets:\n- {kind: cat}\n"
    house = load(tmp_path, text, "rooms=4", "pets.0.lives=7", "name=null-house")
    assert (house.rooms, house.pets[0].lives, house.name) == (4, 7, "null-house")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("rooms", "not of the form"),
        ("pets.3.lives=1", "not an index below 1"),
        ("name.first=x", "single value"),
        ("name=[", "not valid YAML"),
    ],
)
def test_overrides_that_do_not_fit(override, words):
    data = {"pets": [{"kind": "cat"}], "name": [1]} if override != "name.first=x" else {"name": {"first": {}}, "x": 1}
    if override == "name.first=x":
        data, override = {"a": [1]}, "a.0.b=1"
    with pytest.raises(UserError, match=words):
        apply_override(data, override)


def test_an_unknown_overridden_key_is_an_error_too(tmp_path):
    assert "unknown key 'roms'" in sentence(tmp_path, "name: home\n", "roms=3")
