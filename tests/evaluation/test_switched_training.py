import numpy as np
import pytest

from xlm.codeswitch.tokens import tokenise
from xlm.config.recipe import CodeSwitchedTraining, Recipe
from xlm.corpora.documents import SentencePair
from xlm.corpora.store import write_pairs
from xlm.evaluation.finetune import LabelledTexts
from xlm.evaluation.intent_task import IntentTask, Sentences, training_subset
from xlm.evaluation.lexicons import load_lexicons
from xlm.evaluation.packing import TokenisedTexts
from xlm.evaluation.switched_training import load_switched_training, with_copies
from xlm.runs.folder import RunFolder

TEXTS = ("turn on the light", "open the door", "is the window open", "close the garden gate") * 5
WORDS = ("turn", "light", "open", "door", "window", "close", "garden", "gate")
TRANSLATIONS = {language: {word: f"{mark}{word}" for word in WORDS} for language, mark in (("de", "ü"), ("fr", "ç"))}


class Tasks:
    languages = ("en", "de", "fr")
    seed = 5


@pytest.fixture
def recipe():
    return Recipe.model_construct(tasks=Tasks())


@pytest.fixture
def task():
    train = Sentences(tuple(map(str, range(20))), TEXTS, np.arange(20) % 2, tuple(f"t{number % 10}" for number in range(20)))
    subsets = tuple(training_subset(train.templates, train.labels, seed) for seed in (1, 2))
    return IntentTask(("a", "b"), train, train, {"en": train}, {"en": {}}, {}, (1, 2), subsets)


@pytest.fixture
def run(tmp_path):
    for language, translations in TRANSLATIONS.items():
        pairs = [SentencePair(word, word, other, "en", language, "made up") for word, other in translations.items()]
        write_pairs(tmp_path / "corpus", f"en_{language}", pairs)
    return RunFolder(tmp_path)


def test_only_words_of_the_training_half_are_switched(run, recipe, task):
    training = load_lexicons(run.corpus, ("de", "fr"), 5, "k").training
    switched = load_switched_training(recipe, CodeSwitchedTraining(rate=1.0, copies=3), run, task)
    replaced = set()
    for copy in switched.copies:
        for before, after in zip(TEXTS, copy, strict=True):
            words = [[text[token.start : token.end] for token in tokenise(text)] for text in (before, after)]
            replaced |= {one for one, other in zip(*words, strict=True) if one != other}
    assert replaced
    assert replaced == set(training["de"].entries) & set(WORDS)
    assert len(set(switched.copies)) == 3  # each copy is another draw
    assert switched.record["sentences"] == 60
    assert switched.record["lexicon"]["de"]["entries"] == len(training["de"])
    assert switched.record["realised_share"] == switched.record["lexicon"]["fr"]["coverage"] > 0


def test_named_languages_are_the_only_ones(run, recipe, task):
    switched = load_switched_training(recipe, CodeSwitchedTraining(rate=1.0, copies=1, languages=("fr",)), run, task)
    assert any("ç" in text for text in switched.copies[0])
    assert not any("ü" in text for text in switched.copies[0])


def test_a_seed_trains_on_the_copies_of_its_own_sentences(task):
    copies = [tuple(f"copy {number} {text}" for text in TEXTS) for number in (1, 2)]
    more = with_copies(task, copies)
    assert len(more.train) == len(set(more.train.ids)) == 60
    for rows, own, seed in zip(more.subsets, task.subsets, task.seeds, strict=True):
        assert [more.train.templates[row] for row in rows] == [task.train.templates[row] for row in own] * 3
        assert (more.train.labels[rows] == np.tile(task.train.labels[own], 3)).all()
        assert [more.train.texts[row] for row in rows[2 * len(own) :]] == [copies[1][row] for row in own]
        # As a draw over the templates of all copies would have it.
        assert (np.sort(rows) == training_subset(more.train.templates, more.train.labels, seed)).all()
    assert more.dev is task.dev


def test_versions_take_turns():
    def texts(first):
        return TokenisedTexts(tuple(np.array([first + row]) for row in range(6)), 0)

    data = LabelledTexts(texts(0), np.arange(6), (texts(100), texts(200)))
    seen = [data.batch(np.arange(6), epoch).input_ids.tolist() for epoch in (1, 2, 3)]
    assert sorted(value for epoch in seen for value in epoch) == sorted([*range(6), *range(100, 106), *range(200, 206)])
    assert all({value // 100 for value in epoch} == {0, 1, 2} for epoch in seen)
    assert all(value % 100 == row for epoch in seen for row, value in enumerate(epoch))
    assert data.subset(np.array([4])).batch(np.array([0]), 1).input_ids.tolist() == [104]
    assert LabelledTexts(texts(0), np.arange(6)).batch(np.array([3]), 7).input_ids.tolist() == [3]
