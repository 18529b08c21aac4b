"""How sure a score is: a paired bootstrap over templates, with the seeds resampled in the outer loop.

Sentences of one template share their words, so they are not independent; the template is. A sample of
the bootstrap (Efron 1979) draws as many seeds as there are, then as many templates as there are, both
with replacement, and takes every sentence of a drawn template along: the cluster bootstrap (Davison &
Hinkley 1997, section 3.8). Two systems are compared within the same draws, which makes it paired. The
interval is the 2.5 % and 97.5 % percentile. With three seeds the resampled seeds carry two thirds of
the variance between seeds; the interval is about these seeds' kind of variation, no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from xlm.errors import UserError
from xlm.seeding import Key, keyed_generator

CONFIDENCE_PERCENT = 95.0
INTERVAL_TEXT = (
    "95 % percentile interval of a bootstrap over templates (all sentences of a drawn template together), "
    "seeds resampled in the outer loop; differences are paired: both systems in the same draws"
)

Floats = NDArray[np.float64]


class TemplateBootstrap:
    """The draws for one test set, made once and shared by all systems that are scored on it.

    ``templates``: the template of each of the n sentences; ``seeds``: the number of seeds S. The seed
    draws depend on ``seed_key`` alone, so that the distributions of several languages may be averaged
    sample by sample: a seed that is drawn twice is then drawn twice in every language.
    """

    def __init__(self, templates: Sequence[str], *, seeds: int, samples: int, key: tuple[Key, ...], seed_key: tuple[Key, ...]) -> None:
        if not templates:
            raise UserError("a test set without sentences cannot be resampled; leave its language out of the evaluation.")
        _, self._group = np.unique(np.asarray(templates, dtype=object).astype(str), return_inverse=True)
        self.templates = int(self._group.max()) + 1
        self.seeds = seeds
        self.samples = samples
        self._sizes = np.bincount(self._group, minlength=self.templates).astype(np.float64)
        # [B, G] and [B, S]: how often each template and each seed was drawn.
        self._template_counts = _draw_counts(keyed_generator("bootstrap-templates", *key), samples, self.templates)
        self._seed_counts = _draw_counts(keyed_generator("bootstrap-seeds", *seed_key), samples, seeds)

    def distribution(self, values: NDArray[np.generic]) -> Floats:
        """Return the resampled means [B] of per-sentence ``values`` [S, n], or [1, n] where seeds do not matter."""
        sizes = (self._template_counts @ self._sizes)[:, None]
        return self._over_seeds(self._resampled(values) / sizes)

    def ratio_distribution(self, numerators: NDArray[np.generic], denominators: NDArray[np.generic]) -> Floats:
        """Return the resampled ratios of sums [B] of two per-sentence counts [S, n], such as F1's; 0 where nothing is below the line."""
        below = self._resampled(denominators)
        return self._over_seeds(np.where(below > 0, self._resampled(numerators) / np.where(below > 0, below, 1.0), 0.0))

    def _resampled(self, values: NDArray[np.generic]) -> Floats:
        """Return the sums [B, S] of per-sentence values over the templates drawn."""
        values = np.asarray(values, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(self._group) or values.shape[0] not in (1, self.seeds):
            raise ValueError(f"values of shape {values.shape} do not fit {self.seeds} seeds x {len(self._group)} sentences")
        sums = np.stack([np.bincount(self._group, weights=row, minlength=self.templates) for row in values])  # [S, G]
        return np.asarray(self._template_counts @ sums.T)

    def _over_seeds(self, per_seed: Floats) -> Floats:
        if per_seed.shape[1] == 1:
            return np.asarray(per_seed[:, 0])
        return np.asarray((per_seed * self._seed_counts).sum(axis=1) / self.seeds)

    def interval(self, values: NDArray[np.generic]) -> tuple[float, float]:
        """Return the 95 % percentile interval of the mean of ``values`` [S, n]."""
        return percentile_interval(self.distribution(values))


def clustered_standard_error(values: NDArray[np.generic], templates: Sequence[str]) -> float:
    """Return the standard error of the mean of n ``values``, those of a template together (Liang & Zeger 1986): 0 with one template.

    The root of G / (G - 1) times the sum over the G templates of (the sum of their deviations from the mean / n) squared.
    """
    _, group = np.unique(np.asarray(templates, dtype=object).astype(str), return_inverse=True)
    centred = np.asarray(values, dtype=np.float64)
    centred = centred - centred.mean()
    sums = np.bincount(group, weights=centred) / len(centred)
    groups = len(sums)
    return float(np.sqrt(groups / (groups - 1) * np.sum(sums**2))) if groups > 1 else 0.0


def two_sided_p(distribution: Floats) -> float:
    """Return the bootstrap p-value of "no difference": twice the smaller tail beyond 0, never below 1 / B (Davison & Hinkley 1997, 4.5)."""
    samples = len(distribution)
    tail = min(int((distribution <= 0).sum()), int((distribution >= 0).sum()))
    return min(1.0, 2.0 * max(tail, 0.5) / samples)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return adjusted p-values (Holm 1979): the i-th smallest of m times m - i + 1, never below those before it, at most 1."""
    adjusted: dict[str, float] = {}
    highest = 0.0
    for position, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        highest = max(highest, min(1.0, (len(p_values) - position) * p_values[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def percentile_interval(distribution: Floats) -> tuple[float, float]:
    """Return the central 95 % of a bootstrap distribution [B]."""
    tail = (100.0 - CONFIDENCE_PERCENT) / 2.0
    low, high = np.percentile(distribution, [tail, 100.0 - tail])
    return float(low), float(high)


def _draw_counts(generator: np.random.Generator, samples: int, items: int) -> Floats:
    """Draw ``items`` of ``items`` with replacement, ``samples`` times, and count: [samples, items]."""
    drawn = generator.integers(0, items, size=(samples, items))
    drawn += np.arange(samples)[:, None] * items
    return np.bincount(drawn.ravel(), minlength=samples * items).reshape(samples, items).astype(np.float64)
