from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.codeswitch.tokens import tokenise
from xlm.config.recipe import IntentsSection
from xlm.tasks.fillers import FillerHalves
from xlm.tasks.grammar import Template, load_grammar
from xlm.tasks.intents import clean_sentence, clean_slotted, draw_intents, family, split_templates
from xlm.tasks.sampling import Slot, SlottedText

FILLERS = FillerHalves(
    train={"name": ("Toaster", "Kettle"), "area": ("Attic", "Hall"), "message": ("Lunch is ready",), "shopping_list_item": ("Tea",)},
    test={
        "name": ("Desk Lamp", "Fan", "Heater", "Radio"),
        "area": ("Kitchen", "Office"),
        "message": ("Dinner is ready",),
        "shopping_list_item": ("Milk",),
    },
)
NOTHING = FillerHalves({}, {})
SECTION = IntentsSection(sentences_per_template=3)
LABELS = ("AddItem", "Announce", "Open", "SetBrightness", "TurnOn")


def _templates(counts):
    return [Template(f"{label}{n}", label, f"say {n}", None) for label, count in counts.items() for n in range(count)]


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 40), min_size=1), st.integers(0, 5), st.booleans())
def test_every_template_is_in_one_split_and_every_label_is_spread(counts, seed, source):
    templates = _templates(counts)
    splits = split_templates(templates, IntentsSection(dev_share=0.15, test_share=0.25), seed, source=source)
    assert set(splits) == {template.id for template in templates}
    for label, count in counts.items():
        found = Counter(splits[template.id] for template in templates if template.label == label)
        if not source:
            assert found["train"] == 0
            assert found["test"] >= 1
        elif count == 1:
            assert found == {"train": 1}
        else:
            assert found["train"] >= 1
            assert found["test"] >= 1
        if count == 40:
            assert found["dev"] == 6
            assert found["test"] == (10 if source else 34)
    assert splits == split_templates(templates[::-1], IntentsSection(dev_share=0.15, test_share=0.25), seed, source=source)


def test_another_seed_splits_otherwise():
    templates = _templates({"a": 20})
    assert split_templates(templates, SECTION, 1, source=True) != split_templates(templates, SECTION, 2, source=True)


def test_variations_of_a_template_are_one_family_and_in_one_split():
    texts = [
        "decrease [the|my] {area} timer",
        "Decrease {timer_name:name} timer",
        "decrease [[all] the] {area}  timer",
        "stop {area} timer",
    ]
    templates = [Template(f"A{n}", "A", text, None) for n, text in enumerate(texts)]
    assert len({family(template) for template in templates}) == 2
    assert family(templates[0]) != family(Template("B", "B", texts[0], None))
    for seed in range(20):
        splits = split_templates(templates, SECTION, seed, source=True)
        assert len({splits["A0"], splits["A1"], splits["A2"]}) == 1
        assert splits["A3"] != splits["A0"]


def test_english_has_three_splits_and_templates_never_cross_them(intents_wheel):
    draw = draw_intents(load_grammar(intents_wheel, "en"), FILLERS, LABELS, SECTION, 7, source=True)
    by_template = {}
    for sentence in draw.sentences:
        by_template.setdefault(sentence.template, set()).add(sentence.split)
    assert all(len(splits) == 1 for splits in by_template.values())
    assert {sentence.split for sentence in draw.sentences} >= {"train", "test"}
    assert max(Counter(sentence.id.rsplit(":", 1)[0] for sentence in draw.sentences).values()) <= 3
    assert len({sentence.text for sentence in draw.sentences}) == len(draw.sentences)
    assert len({sentence.id for sentence in draw.sentences}) == len(draw.sentences)
    assert draw == draw_intents(load_grammar(intents_wheel, "en"), FILLERS, LABELS, SECTION, 7, source=True)
    assert draw.sentences != draw_intents(load_grammar(intents_wheel, "en"), FILLERS, LABELS, SECTION, 8, source=True).sentences


def test_another_language_is_never_trained_on_and_every_drop_is_counted(intents_wheel):
    draw = draw_intents(load_grammar(intents_wheel, "de"), FILLERS, LABELS, SECTION, 7, source=False)
    assert set(draw.split_counts()) == {"dev", "test"}
    assert draw.dropped["label unknown in English (templates)"] == 1
    assert draw.dropped["template with no text for the slot {unknown_slot}"] == 1
    assert set(draw.class_counts()) == {"TurnOn", "Open"}
    # "{name} an!" and "{name} an" would be one text; here they are different templates of one label.
    assert draw.class_counts()["TurnOn"] == sum(sentence.label == "TurnOn" for sentence in draw.sentences)


def test_one_text_never_has_two_labels_or_two_splits():
    from hassil import Intents

    from xlm.tasks.grammar import Grammar

    def grammar(**sentences):
        intents = Intents.from_dict({"language": "en", "intents": {name: {"data": [{"sentences": s}]} for name, s in sentences.items()}})
        templates = tuple(
            Template(f"{name}:{index}", name, sentence.text, sentence.expression)
            for name, intent in intents.intents.items()
            for index, sentence in enumerate(intent.data[0].sentences)
        )
        return Grammar("en", templates, {}, {}, {})

    two_labels = draw_intents(grammar(A=["go (left|right)"], B=["go (left|up)"]), NOTHING, ("A", "B"), SECTION, 0, source=True)
    assert {sentence.text for sentence in two_labels.sentences} == {"go right", "go up"}
    assert two_labels.dropped == {"sentence under two intents": 2}
    two_splits = draw_intents(grammar(A=["go", "go!", "go?", "go;now"]), NOTHING, ("A",), SECTION, 0, source=True)
    assert sum(sentence.text == "go" for sentence in two_splits.sentences) == 1
    crossing = two_splits.dropped.get("sentence in an earlier split", 0) + two_splits.dropped.get("sentence repeated", 0)
    assert crossing >= 2


@pytest.mark.parametrize(
    ("language", "raw", "clean"),
    [
        ("en", " What's  on my (living-room) list? ", "what's on my living-room list"),
        ("en", "set it to 20.5 °, now: -5 %", "set it to 20.5 ° now -5 %"),
        ("en", "at 7:30 - add 1/2 hour", "at 7:30 add 1/2 hour"),
        ("fr", "Allume l’éclairage !", "allume l’éclairage"),
        ("es", "¿Está encendida?", "está encendida"),
        ("tr", "IŞIKLARI AÇ, İstanbul", "ışıkları aç istanbul"),
        ("zh-Hans", "请 把 TV 打开。", "请把 tv 打开"),
        ("ja", "キッチン の 電気 を つけて", "キッチンの電気をつけて"),
        ("hi", "बत्ती बंद करो।", "बत्ती बंद करो"),
        ("ar", "شغّل الضوء؟", "شغّل الضوء"),
        ("ru", "на 5-минутный таймер", "на 5-минутный таймер"),
        ("en", "?!", ""),
    ],
)
def test_sentences_are_cleaned_as_a_recogniser_would_give_them(language, raw, clean):
    assert clean_sentence(raw, language) == clean


@given(st.text(max_size=40), st.sampled_from(["en", "tr", "zh-Hans"]))
def test_cleaning_leaves_single_spaces_and_is_idempotent(text, language):
    once = clean_sentence(text, language)
    assert once == once.strip()
    assert "  " not in once
    assert clean_sentence(once, language) == once


def test_slots_are_filled_otherwise_in_training_and_their_words_are_tagged(intents_wheel):
    draw = draw_intents(load_grammar(intents_wheel, "en"), FILLERS, LABELS, SECTION, 7, source=True)
    filled = {"train": set(), "test": set()}
    for sentence in draw.sentences:
        words = [sentence.text[token.start : token.end] for token in tokenise(sentence.text)]
        tags = sentence.tags.split()
        assert len(tags) == len(words)
        half = "train" if sentence.split == "train" else "test"
        known = {word for texts in getattr(FILLERS, half).values() for text in texts for word in text.lower().split()}
        for word, tag in zip(words, tags, strict=True):
            if tag.partition("-")[2] in ("name", "area", "message", "shopping_list_item"):
                filled[half].add(word)
                assert word in known
            elif tag == "O":
                assert word not in known - {"is", "on"}
    assert filled["train"]
    assert filled["test"]
    assert filled["train"] & filled["test"] <= {"is", "ready"}


@given(
    st.lists(st.tuples(st.text("aB İΣς'.-%5 \t灯打", max_size=6), st.sampled_from([None, "x", "y"])), max_size=8),
    st.sampled_from(["en", "tr", "el"]),
)
def test_slots_stay_on_their_text_through_cleaning(parts, language):
    text = "".join(part for part, _ in parts)
    slots, start = [], 0
    for part, name in parts:
        slots += [Slot(start, start + len(part), name)] if name else []
        start += len(part)
    cleaned = clean_slotted(SlottedText(text, tuple(slots)), language)
    assert cleaned.text == clean_sentence(text, language)
    assert all(before.end <= after.start for before, after in zip(cleaned.slots, cleaned.slots[1:], strict=False))
    # What a slot holds is what it held, but for what cleaning takes out: spaces, punctuation, capitals.
    left = iter(cleaned.slots)
    for slot in slots:
        letters = [letter for letter in text[slot.start : slot.end].lower() if letter.isalnum()]
        if letters:
            kept = next(one for one in left if any(letter.isalnum() for letter in cleaned.text[one.start : one.end]))
            assert kept.name == slot.name
            found = [letter for letter in cleaned.text[kept.start : kept.end].lower() if letter.isalnum()]
            assert [_plain(letter) for letter in found] == [_plain(letter) for letter in letters]


def _plain(letter):
    return {"ς": "σ", "ı": "i"}.get(letter, letter)
