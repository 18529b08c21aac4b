"""What a score has to beat: systems that know nothing of other languages than English training data gives away.

Every floor trains on the same English sentences as the encoder's classifiers, seed by seed, and is given
its best penalty on the same English dev set: a floor that was not tuned is no floor.

- chance: always the most frequent English training label.
- character n-grams: what shared letters, loan words, names and numbers give without any pretraining.
- the same encoder with random weights (`xlm.evaluation.trained_encoder.random_twin`): what the architecture gives.
- the bag of aligned embeddings: what the initialisation already knew before the first training step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import hstack
from sklearn.feature_extraction.text import TfidfVectorizer

from xlm.evaluation.packing import TokenisedTexts
from xlm.evaluation.probe import Labels, LinearClassifier, fit_linear

# Rows of tf-idf have length 1, unlike standardised features, so that their penalties are smaller.
CHARACTER_PENALTIES = (0.1, 0.01, 0.001)
CHARACTER_NGRAMS = (1, 5)
# Of words in their context longer ones were worth nothing on English dev (.877 of tags either way), and three times the features.
CONTEXT_NGRAMS = (1, 3)


class Vectoriser(Protocol):
    """What turns texts into sparse rows of features."""

    def fit(self, texts: Any, /) -> Self:  # noqa: ANN401 (scikit-learn's)
        """Learn the features of training texts."""

    def transform(self, texts: Any, /) -> Any:  # noqa: ANN401
        """Return a sparse row a text."""


class ContextVectoriser:
    """A word in its sentence: tf-idf of character n-grams of the word before it, of itself and of the word after, side by side."""

    def __init__(self) -> None:
        self._parts = tuple(_vectoriser(CONTEXT_NGRAMS) for _ in range(3))

    def fit(self, texts: Any) -> Self:  # noqa: ANN401
        """Learn from ``texts`` [n, 3]: the word before, the word, the word after."""
        for part, column in zip(self._parts, np.asarray(texts, dtype=object).T, strict=True):
            part.fit([*column, "x"])  # a vectoriser wants one word at least
        return self

    def transform(self, texts: Any) -> Any:  # noqa: ANN401
        """Return the three blocks of features of each row of ``texts`` [n, 3]."""
        columns = np.asarray(texts, dtype=object).reshape(-1, 3).T
        return hstack([part.transform(column) for part, column in zip(self._parts, columns, strict=True)], format="csr")


@dataclass(frozen=True)
class CharacterClassifier:
    """tf-idf of character 1- to 5-grams inside words, and a multinomial logistic regression."""

    vectoriser: Vectoriser
    classifier: LinearClassifier

    def predict(self, texts: Sequence[Any]) -> Labels:
        """Return the most probable label of each text."""
        return np.asarray(self.classifier.predict(self.vectoriser.transform(texts)), dtype=np.int64)


@dataclass(frozen=True)
class CharacterChoice:
    """The penalty that English dev chose, and its mean accuracy over the seeds there."""

    penalty: float
    dev_accuracy: float


def choose_character_classifiers(
    train_texts: Sequence[Any],
    dev_texts: Sequence[Any],
    train_labels: Labels,
    dev_labels: Labels,
    subsets: Sequence[NDArray[np.int64]],
    penalties: Sequence[float] = CHARACTER_PENALTIES,
    vectoriser: Callable[[], Vectoriser] | None = None,
    seeds_to_choose: int | None = None,
) -> tuple[CharacterChoice, list[CharacterClassifier]]:
    """Choose the penalty on English dev and return the classifier of each seed; ties go to the stronger penalty.

    ``seeds_to_choose``: only the first so many seeds try every penalty, where fitting is dear; all of them without.
    """
    texts = np.asarray(train_texts, dtype=object)

    def fit(rows: NDArray[np.int64], penalty: float) -> CharacterClassifier:
        fitted = (vectoriser or _vectoriser)().fit(texts[rows])
        return CharacterClassifier(fitted, fit_linear(fitted.transform(texts[rows]), train_labels[rows], penalty))

    choosing, others = subsets[:seeds_to_choose], subsets[len(subsets[:seeds_to_choose]) :]
    best: tuple[CharacterChoice, list[CharacterClassifier]] | None = None
    for penalty in sorted(penalties, reverse=True):
        fitted = [fit(rows, penalty) for rows in choosing]
        accuracy = float(np.mean([np.mean(classifier.predict(dev_texts) == dev_labels) for classifier in fitted]))
        if best is None or accuracy > best[0].dev_accuracy:
            best = CharacterChoice(penalty, accuracy), fitted
    if best is None:
        raise ValueError("no penalty to choose from")
    choice, classifiers = best
    return choice, [*classifiers, *(fit(rows, choice.penalty) for rows in others)]


def _vectoriser(ngrams: tuple[int, int] = CHARACTER_NGRAMS) -> TfidfVectorizer:
    return TfidfVectorizer(analyzer="char_wb", ngram_range=ngrams, sublinear_tf=True, dtype=np.float32)


def majority_label(labels: Labels) -> int:
    """Return the most frequent label; the smallest of several."""
    return int(np.argmax(np.bincount(labels)))


def bag_of_embeddings(table: NDArray[np.float32], tokenised: TokenisedTexts) -> NDArray[np.float32]:
    """Return the mean row of ``table`` [vocabulary, width] over each text's pieces, special ones left out: [n, width].

    A text without pieces is the zero vector.
    """
    vectors = np.zeros((len(tokenised.sequences), table.shape[1]), dtype=np.float32)
    for row, sequence in enumerate(tokenised.sequences):
        pieces = sequence[1:-1]
        if len(pieces):
            vectors[row] = table[pieces].mean(axis=0)
    return vectors
