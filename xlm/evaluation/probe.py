"""The frozen-encoder probe: what a linear classifier reads from vectors that were never tuned for the task.

Features are standardised with the mean and deviation of the English training vectors (whitened ones with one
deviation for all: each of its own would undo the whitening), then a multinomial logistic regression is fitted. For
classes k, W of [labels, features] and penalty p it minimises

    sum_i -log softmax(W x_i + b)[y_i]  +  p / 2 * |W|^2

(Hastie, Tibshirani & Friedman 2009, 4.4; scikit-learn's C is 1 / p). The layer, if several are given, is the one
with the best accuracy on English dev, averaged over the seeds, and the penalty the strongest whose accuracy there is
within one standard error of that layer's best (the one-standard-error rule: ibid. 7.10): English dev sentences are like
those trained on, so that they hardly tell penalties apart, and what is penalised is what does not transfer. No other
language is looked at.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from xlm.evaluation.statistics import clustered_standard_error
from xlm.runs.cores import usable_cores

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
    """What English dev chose: a position in the list of layers, a penalty, and the accuracies it chose from."""

    layer: int
    penalty: float
    dev_accuracy: float
    table: NDArray[np.float64]  # [layers, penalties], mean over seeds, 0 to 1


def fit_linear(features: object, labels: Labels, penalty: float) -> LinearClassifier:
    """Fit a multinomial logistic regression; ``features`` [n, features], dense or sparse.

    One thread: threads that wait for each other cost more than they give, on two cores up to twice the time.
    """
    return _fitted(LogisticRegression(C=1.0 / penalty, max_iter=MAX_ITERATIONS), features, labels)


def fit_probes(features: NDArray[np.generic], labels: Labels, penalties: Sequence[float], *, one_deviation: bool = False) -> list[Probe]:
    """Fit a probe for each penalty on training vectors [n, features], each starting from the one before, in single precision.

    ``one_deviation``: the root mean square deviation of all features scales each.
    """
    dense = np.asarray(features, dtype=np.float64)
    mean = dense.mean(axis=0)
    deviation = dense.std(axis=0)
    if one_deviation:
        deviation = np.full_like(deviation, np.sqrt(np.mean(deviation**2)))
    deviation = np.maximum(deviation, SMALLEST_DEVIATION)
    scaled = ((dense - mean) / deviation).astype(np.float32)
    model = LogisticRegression(max_iter=MAX_ITERATIONS, warm_start=True)
    return [Probe(mean, deviation, copy.copy(_fitted(model.set_params(C=1.0 / penalty), scaled, labels))) for penalty in penalties]


def _fitted(model: LogisticRegression, features: object, labels: Labels) -> LinearClassifier:
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted: LinearClassifier = model.fit(features, labels)
    return fitted


def choose_probes(
    train: Sequence[NDArray[np.generic]],
    dev: Sequence[NDArray[np.generic]],
    train_labels: Labels,
    dev_labels: Labels,
    dev_templates: Sequence[str],
    subsets: Sequence[NDArray[np.int64]],
    penalties: Sequence[float],
    *,
    one_deviation: bool = False,
) -> tuple[ProbeChoice, list[Probe]]:
    """Choose layer and penalty on English dev and return the chosen probe of each seed.

    ``train`` and ``dev`` hold for each seed the vectors [layers, n, features] (the same array for each
    seed, unless the encoder itself depends on it); ``subsets`` the rows that a seed trains on. Layers that tie: the
    earlier one.
    """
    layers = train[0].shape[0]
    ordered = sorted(penalties, reverse=True)

    def fit(task: tuple[int, NDArray[np.generic], NDArray[np.int64]]) -> list[Probe]:
        layer, vectors, rows = task
        return fit_probes(vectors[layer][rows], train_labels[rows], ordered, one_deviation=one_deviation)

    # numpy lets other threads run while it computes.
    tasks = [(layer, vectors, rows) for layer in range(layers) for vectors, rows in zip(train, subsets, strict=True)]
    with threadpool_limits(limits=1), ThreadPoolExecutor(max_workers=usable_cores()) as pool:
        fitted = list(pool.map(fit, tasks))
    # By layer and penalty, the probe of each seed.
    grid = [
        [list(probes) for probes in zip(*fitted[first : first + len(train)], strict=True)] for first in range(0, len(fitted), len(train))
    ]
    # [layers, penalties, dev]: the share of seeds that are right on a dev sentence.
    hits = np.array(
        [
            [np.mean([probe.predict(own[layer]) == dev_labels for probe, own in zip(probes, dev, strict=True)], axis=0) for probes in row]
            for layer, row in enumerate(grid)
        ]
    )
    table = hits.mean(axis=2)
    layer, best = (int(index) for index in np.unravel_index(np.argmax(table), table.shape))
    enough = table[layer, best] - clustered_standard_error(hits[layer, best], dev_templates)
    column = int(np.argmax(table[layer] >= enough))
    return ProbeChoice(layer, ordered[column], float(table[layer, column]), table), grid[layer][column]
