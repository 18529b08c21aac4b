"""Numbers as score files show them: percent, three decimals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import SupportsFloat

import numpy as np

from xlm.evaluation.statistics import Floats, percentile_interval

DIGITS = 3


def rounded(value: SupportsFloat) -> float:
    """Round for a score file."""
    return round(float(value), DIGITS)


def percent_interval(distribution: Floats) -> list[float]:
    """Return the 95 % interval, in percent, of a bootstrap distribution [B] of shares."""
    low, high = percentile_interval(distribution)
    return [rounded(100.0 * low), rounded(100.0 * high)]


def mean_of(scores: Mapping[str, float | None]) -> float | None:
    """Return the mean of those scores that exist, None where none does."""
    present = [value for value in scores.values() if value is not None]
    return rounded(np.mean(present)) if present else None
