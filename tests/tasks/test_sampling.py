from dataclasses import replace

import pytest
from hassil import Intents
from hassil.sample import sample_sentence
from hassil.util import normalize_whitespace

from xlm.seeding import keyed_generator
from xlm.tasks.grammar import Grammar, Template, load_grammar
from xlm.tasks.sampling import SentenceSampler, UnfilledTemplateError

FILLERS = {"name": ("lamp", "fan"), "area": ("kitchen",), "message": ("dinner is ready",), "shopping_list_item": ("milk", "tea")}
LISTS = {
    "color": {"values": [{"in": "(dark|light) red", "out": 1}, "blue"]},
    "level": {"range": {"from": 0, "to": 30, "step": 10, "words": False, "fractions": "halves"}},
    "count": {"range": {"from": 1, "to": 12, "digits": False, "words_language": "en"}},
}
RULES = {"turn": "(turn|<switch>)", "switch": "switch [on|off]", "round": "a <round>"}


def _intents(*texts, lists=LISTS):
    data = {"language": "en", "intents": {"A": {"data": [{"sentences": list(texts)}]}}, "lists": lists, "expansion_rules": RULES}
    return Intents.from_dict(data)


def _grammar(text, lists=LISTS):
    intents = _intents(text, lists=lists)
    (sentence,) = intents.intents["A"].data[0].sentences
    rules = {name: rule.expression for name, rule in intents.expansion_rules.items()}
    return Grammar("en", (Template("t", "A", sentence.text, sentence.expression),), rules, intents.slot_lists, {})


def _draws(grammar, fillers=None, count=600):
    (template,) = grammar.templates
    sampler, generator = SentenceSampler(grammar, fillers or {}), keyed_generator("draws")
    return {normalize_whitespace(sampler.draw(template, generator).text).strip() for _ in range(count)}


@pytest.mark.parametrize(
    "text",
    [
        "turn [the] (light|lamp)[s] (on|off)[ please]",
        "<turn> [(the|my)] {color} light",
        "(red;green;blue) light",
        "set it to {level:percent}[ ]%",
        "wait {count} days",
    ],
)
def test_random_walks_reach_exactly_what_hassil_enumerates(text):
    intents = _intents(text)
    (sentence,) = intents.intents["A"].data[0].sentences
    enumerated = sample_sentence(sentence, intents.slot_lists, intents.expansion_rules)
    assert _draws(_grammar(text)) == {normalize_whitespace(one).strip() for one in enumerated}


def test_numbers_are_spelled_in_the_language_of_the_sentence():
    halves = {"level": {"range": {"from": 21, "to": 22, "fractions": "halves"}}}
    assert _draws(_grammar("{level}", halves)) == {
        "twenty-one",
        "twenty-one point five",
        "twenty-two",
        "twenty-two point five",
    }
    assert _draws(_grammar("volume {1..9,4:volume}")) == {"volume one", "volume five", "volume nine"}
    german = replace(_grammar("{level}", {"level": {"range": {"from": 22, "to": 22}}}), language="de")
    assert _draws(german) == {"zweiundzwanzig"}
    russian = replace(german, language="ru")
    assert _draws(russian) == {"двадцать два", "двадцать две"}
    two = _grammar("{level}", {"level": {"range": {"from": 2, "to": 2}}})
    assert _draws(replace(two, language="zh-Hans")) == {"二", "两"}
    assert _draws(replace(two, language="tlh")) == {"2"}


def test_open_slots_take_the_fillers(intents_wheel):
    grammar = load_grammar(intents_wheel, "en")
    sampler, generator = SentenceSampler(grammar, FILLERS), keyed_generator(1)
    texts = {sampler.draw(template, generator).text for template in grammar.templates for _ in range(30)}
    assert "say dinner is ready" in texts
    assert any("lamp" in text for text in texts)
    assert not any(character in text for text in texts for character in "{}<>[]()|")


def test_draws_are_distinct_bounded_and_repeatable():
    grammar = _grammar("turn (on|off) {name}")
    sampler = SentenceSampler(grammar, FILLERS)
    (template,) = grammar.templates
    first = sampler.draw_distinct(template, 3, keyed_generator("a"))
    assert len(first) == len(set(first)) == 3
    assert first == sampler.draw_distinct(template, 3, keyed_generator("a"))
    assert len(sampler.draw_distinct(template, 50, keyed_generator("a"))) == 4
    assert any(first != sampler.draw_distinct(template, 3, keyed_generator("b", n)) for n in range(5))


def test_a_template_of_astronomically_many_sentences_is_sampled_at_once():
    grammar = _grammar(" ".join(["[(a|b|c|d|e|f|g|h) {number}]"] * 30), {"number": {"range": {"from": 0, "to": 100000}}})
    (template,) = grammar.templates
    assert len(SentenceSampler(grammar, {}).draw_distinct(template, 4, keyed_generator(0))) == 4


@pytest.mark.parametrize(
    ("text", "message"), [("go to {place}", r"no text for the slot \{place\}"), ("<nothing>", "no rule <nothing>"), ("<round>", "circle")]
)
def test_what_cannot_be_filled_is_named(text, message):
    grammar = _grammar(text)
    (template,) = grammar.templates
    with pytest.raises(UnfilledTemplateError, match=message):
        SentenceSampler(grammar, {"place": ()}).draw(template, keyed_generator(0))


def test_slots_say_where_their_text_stands():
    grammar = _grammar("put {area} [{color:shade}] to {level:@answer} {1..3:count} [in {name}]")
    (template,) = grammar.templates
    sampler, generator = SentenceSampler(grammar, FILLERS), keyed_generator("slots")
    seen = set()
    for _ in range(60):
        drawn = sampler.draw(template, generator)
        filled = {slot.name: drawn.text[slot.start : slot.end] for slot in drawn.slots}
        assert filled["area"] == "kitchen"
        assert filled["count"] in ("one", "two", "three")
        assert filled.get("shade") in (None, "dark red", "light red", "blue")
        assert filled.get("name") in (None, *FILLERS["name"])
        assert "answer" not in filled
        assert [slot.start for slot in drawn.slots] == sorted(slot.start for slot in drawn.slots)
        seen |= set(filled)
    assert seen == {"area", "shade", "count", "name"}


def test_a_slot_inside_a_slots_value_is_part_of_it():
    grammar = _grammar("set {place}", {"place": {"values": ["the {name} room"]}})
    (template,) = grammar.templates
    drawn = SentenceSampler(grammar, FILLERS).draw(template, keyed_generator(0))
    assert [(slot.name, drawn.text[slot.start : slot.end]) for slot in drawn.slots] == [("place", drawn.text.removeprefix("set "))]
