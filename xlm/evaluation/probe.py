"""The frozen-encoder probe: what a linear classifier reads from vectors that were never tuned for the task.

Features are standardised with the mean and deviation of the English training vectors, then a multinomial
logistic regression is fitted. For classes k, W of [labels, features] and penalty p it minimises

    sum_i -log softmax(W x_i + b)[y_i]  +  p / 2 * |W|^2

(Hastie, Tibshirani & Friedman 2009, 4.4; scikit-learn's C is 1 / p). Penalty, and layer if several are
given, are those with the best accuracy on English dev, averaged over the seeds; no other language is
looked at.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

MAX_ITERATIONS = 500
# A feature that never varies would be divided by zero; one that hardly varies would be blown up.
SMALLEST_DEVIATION = 1e-6

Labels = NDArray[np.int64]


class LinearClassifier(Protocol):
    """What scikit-learn's classifiers offer here."""

    def predict(self, features: object) -> NDArray[np.generic]:
        """Return a label for each row."""


@dataclass(frozen=True)
class Probe:
    """A standardisation and a linear classifier on top of it."""

    mean: NDArray[np.float64]  # [features]
    deviation: NDArray[np.float64]  # [features]
    classifier: LinearClassifier

    def predict(self, features: NDArray[np.generic]) -> Labels:
        """Return the most probable label of each row of ``features`` [n, features]."""
        standardised = (np.asarray(features, dtype=np.float64) - self.mean) / self.deviation
        return np.asarray(self.classifier.predict(standardised), dtype=np.int64)


@dataclass(frozen=True)
class ProbeChoice:
    """What English dev chose: positions in the list of layers and of penalties, and the accuracies it chose from."""

    layer: int
    penalty: float
    dev_accuracy: float
    table: NDArray[np.float64]  # [layers, penalties], mean over seeds, 0 to 1


def fit_linear(features: object, labels: Labels, penalty: float) -> LinearClassifier:
    """Fit a multinomial logistic regression; ``features`` [n, features], dense or sparse.

    One thread: the problem is small, and threads that wait for each other cost more than they give.
    """
    model = LogisticRegression(C=1.0 / penalty, max_iter=MAX_ITERATIONS)
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted: LinearClassifier = model.fit(features, labels)
    return fitted


def fit_probe(features: NDArray[np.generic], labels: Labels, penalty: float) -> Probe:
    """Fit a probe on training vectors [n, features]."""
    dense = np.asarray(features, dtype=np.float64)
    mean = dense.mean(axis=0)
    deviation = np.maximum(dense.std(axis=0), SMALLEST_DEVIATION)
    return Probe(mean, deviation, fit_linear((dense - mean) / deviation, labels, penalty))


def choose_probes(
    train: Sequence[NDArray[np.generic]],
    dev: Sequence[NDArray[np.generic]],
    train_labels: Labels,
    dev_labels: Labels,
    subsets: Sequence[NDArray[np.int64]],
    penalties: Sequence[float],
) -> tuple[ProbeChoice, list[Probe]]:
    """Choose layer and penalty on English dev and return the chosen probe of each seed.

    ``train`` and ``dev`` hold for each seed the vectors [layers, n, features] (the same array for each
    seed, unless the encoder itself depends on it); ``subsets`` the rows that a seed trains on. Ties go
    to the earlier layer and the stronger penalty.
    """
    layers = train[0].shape[0]
    ordered = sorted(penalties, reverse=True)
    fitted: dict[tuple[int, int], list[Probe]] = {}
    table = np.zeros((layers, len(ordered)))
    for layer in range(layers):
        for column, penalty in enumerate(ordered):
            probes = [fit_probe(vectors[layer][rows], train_labels[rows], penalty) for vectors, rows in zip(train, subsets, strict=True)]
            hits = [np.mean(probe.predict(vectors[layer]) == dev_labels) for probe, vectors in zip(probes, dev, strict=True)]
            table[layer, column] = np.mean(hits)
            fitted[layer, column] = probes
    layer, column = (int(index) for index in np.unravel_index(np.argmax(table), table.shape))
    choice = ProbeChoice(layer, ordered[column], float(table[layer, column]), table)
    return choice, fitted[layer, column]
