from xlm.corpora.documents import SentencePair
from xlm.corpora.fold import pair_key
from xlm.tasks.fillers import FEWEST_DEVICES, SLOTS, build_fillers, catalogue_names, filler_halves


def _pair(source, target, language="de"):
    return SentencePair(pair_key(source), source, target, "en", language, "catalogue")


def _many(language):
    letters = "abcdefghijklmnopqrst"
    plain = [_pair(f"{a}x {b}y", f"{a}{language} {b}", language) for a in letters for b in letters]
    single = [_pair(f"{a}o{b}", f"{a}u{b}{language}", language) for a in letters for b in letters]
    phrases = [_pair(f"{a}a {b}b c d", f"{a} {b} e f", language) for a in letters for b in letters]
    devices = [_pair(f"{a}{b} sensor", f"{a}{b}fühler", language) for a in letters for b in "abc"]
    return plain + single + phrases + devices


def test_only_short_translated_words_can_be_names():
    pairs = [
        _pair("Garden pump", "Gartenpumpe"),
        _pair("Version 2", "Fassung zwei"),
        _pair("Save?", "Speichern"),
        _pair("Router", "ROUTER"),
        _pair("A very long string that nobody would call a device by", "Langer Text"),
        _pair("Garden pump", "Pumpe im Garten"),
        _pair("Kitchen's light", "Küchen-Licht"),
    ]
    assert [name.text for name in catalogue_names(pairs)] == ["Gartenpumpe", "Küchen-Licht"]
    assert [name.text for name in catalogue_names(pairs, english=True)] == ["Garden pump", "Router", "Kitchen's light"]


def test_areas_are_rooms_and_names_are_devices_where_the_catalogues_have_them():
    rooms = [_pair("Kitchen", "Küche"), _pair("Living Room", "Wohnzimmer"), _pair("Garage", "Garage im Hof")]
    fillers = build_fillers(catalogue_names(_many("de") + rooms), seed=1)
    assert set(fillers["area"]) == {"Küche", "Wohnzimmer", "Garage im Hof"}
    assert all(text.endswith("fühler") for text in fillers["name"])
    assert len(fillers["name"]) == 60


def test_slots_of_a_language_without_rooms_or_devices_are_filled_up():
    names = [pair for pair in catalogue_names(_many("hi")) if "sensor" not in pair.english]
    fillers = build_fillers(names, seed=1)
    assert set(fillers) == set(SLOTS)
    for slot, kind in SLOTS.items():
        assert 0 < len(fillers[slot]) <= kind.size, slot
    assert len(fillers["name"]) > FEWEST_DEVICES


def test_no_string_fills_two_slots_and_languages_share_names():
    german, greek = (build_fillers(catalogue_names(_many(language)), seed=3) for language in ("de", "el"))
    seen = {}
    for slot, texts in german.items():
        for text in texts:
            assert seen.setdefault(text, slot) == slot
    back = {pair.target: pair.key for pair in _many("de")} | {pair.target: pair.key for pair in _many("el")}
    for slot in SLOTS:
        assert {back[text] for text in german[slot]} == {back[text] for text in greek[slot]}


def test_the_draw_does_not_depend_on_the_order_of_the_catalogues():
    names = catalogue_names(_many("de"))
    assert build_fillers(names, seed=3) == build_fillers(names[::-1], seed=3)
    assert build_fillers(names, seed=3) != build_fillers(names, seed=4)


def test_training_and_test_share_no_string_in_any_language():
    english = [*_many("de"), _pair("Kitchen", "Küche"), _pair("Garage", "Garage im Hof"), _pair("Attic", "Dachboden")]
    halves = filler_halves(catalogue_names(english, english=True), seed=5)
    german = filler_halves(catalogue_names(english), seed=5)
    back = {pair.target: pair.source for pair in english}
    train = {text for texts in halves.train.values() for text in texts}
    test = {text for texts in halves.test.values() for text in texts}
    assert train
    assert test
    assert train.isdisjoint(test)
    assert {back[text] for texts in german.test.values() for text in texts}.isdisjoint(train)


def test_a_text_that_translates_strings_of_both_halves_is_in_no_test():
    pairs = [_pair(f"{letter}{letter}o", "einerlei") for letter in "abcdefghijkl"]
    halves = filler_halves(catalogue_names(pairs), seed=1)
    assert "einerlei" in {text for texts in halves.train.values() for text in texts}
    assert "einerlei" not in {text for texts in halves.test.values() for text in texts}
