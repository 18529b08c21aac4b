import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.errors import UserError
from xlm.evaluation.intent_task import load_intent_task, training_subset
from xlm.tasks.evaluation_sets import LabelledText, save_labelled


def sentences(language, rows):
    return [LabelledText(f"{language}-{n}", f"{label} {n}", label, template, split) for n, (label, template, split) in enumerate(rows)]


ENGLISH = [
    *(("Light", f"l{n % 5}", "train") for n in range(20)),
    *(("Weather", f"w{n % 3}", "train") for n in range(9)),
    ("Light", "l9", "dev"),
    ("Timer", "t9", "dev"),
    ("Light", "l8", "test"),
    ("Weather", "w8", "test"),
]
GERMAN = [("Light", "dl", "test"), ("Music", "dm", "test"), ("Music", "dm", "test"), ("Weather", "dw", "dev")]


@pytest.fixture
def folder(tmp_path):
    save_labelled(tmp_path, "intents", "en", sentences("en", ENGLISH))
    save_labelled(tmp_path, "intents", "de", sentences("de", GERMAN))
    return tmp_path


def test_labels_come_from_english_training_data_and_others_are_counted(folder):
    task = load_intent_task(folder, ("en", "de"), (1, 2))
    assert task.labels == ("Light", "Weather")
    assert (len(task.train), len(task.dev)) == (29, 1)
    assert task.tests["en"].labels.tolist() == [0, 1]
    assert task.tests["de"].ids == ("de-0",)
    assert task.unanswerable == {"en": {}, "de": {"Music": 2}}
    assert task.unanswerable_dev == {"Timer": 1}
    assert len(task.subsets) == 2


def test_nothing_but_english_is_trained_on(folder):
    task = load_intent_task(folder, ("en", "de"), (1,))
    assert all(identifier.startswith("en-") for identifier in (*task.train.ids, *task.dev.ids))


def test_missing_english_is_named(folder):
    with pytest.raises(UserError, match=r"trains on English, but tasks\.languages is de"):
        load_intent_task(folder, ("de",), (1,))


def test_missing_language_is_named(folder):
    with pytest.raises(UserError, match=r"fr\.jsonl.*there is de, en"):
        load_intent_task(folder, ("en", "fr"), (1,))


def test_language_without_a_known_label_is_named(folder):
    save_labelled(folder, "intents", "el", sentences("el", [("Music", "m", "test")]))
    with pytest.raises(UserError, match="'el' has no test sentence"):
        load_intent_task(folder, ("en", "el"), (1,))


def test_english_without_dev_is_an_error(folder):
    save_labelled(folder, "intents", "en", sentences("en", [row for row in ENGLISH if row[2] != "dev"]))
    with pytest.raises(UserError, match="29 training and 0 dev"):
        load_intent_task(folder, ("en",), (1,))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_a_subset_takes_whole_templates_and_keeps_every_label(label_of_template, seed):
    templates = [f"t{n}" for n, _ in enumerate(label_of_template) for _ in range(3)]
    labels = np.repeat(np.array(label_of_template), 3)
    rows = training_subset(templates, labels, seed)
    taken = {templates[row] for row in rows}
    assert len(rows) == 3 * len(taken)
    assert set(labels[rows]) == set(labels)
    assert len(taken) >= round(0.9 * len(label_of_template))
    assert (np.diff(rows) > 0).all()


def test_subsets_are_nine_tenths_and_differ_by_seed():
    templates = [f"t{n}" for n in range(200)]
    labels = np.zeros(200, dtype=np.int64)
    first, second = training_subset(templates, labels, 1), training_subset(templates, labels, 2)
    assert len(first) == len(second) == 180
    assert set(first) != set(second)
    assert (training_subset(templates, labels, 1) == first).all()


def test_dev_sentences_of_named_languages_are_kept_apart(folder):
    save_labelled(
        folder,
        "intents",
        "el",
        sentences("el", [("Light", "m", "test"), ("Light", "n", "dev"), ("Weather", "o", "dev"), ("Music", "p", "dev")]),
    )
    task = load_intent_task(folder, ("en", "el"), (1,), dev_languages=("el",))
    assert len(task.dev_sets["el"]) == 2
    assert len(task.tests["el"]) == 1


def test_a_dev_language_without_dev_sentences_is_named(folder):
    save_labelled(folder, "intents", "el", sentences("el", [("Light", "m", "test"), ("Music", "n", "dev")]))
    with pytest.raises(UserError, match=r"evaluation\.dev_languages names 'el', which has no dev sentence"):
        load_intent_task(folder, (), (1,), dev_languages=("el",))
