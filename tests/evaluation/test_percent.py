import numpy as np

from xlm.evaluation.percent import mean_of, percent_interval, rounded


def test_rounding_keeps_three_decimals():
    assert rounded(np.float64(12.34567)) == 12.346
    assert isinstance(rounded(np.float32(1)), float)


def test_interval_is_in_percent():
    assert percent_interval(np.linspace(0, 1, 1001)) == [2.5, 97.5]


def test_mean_leaves_out_what_is_missing():
    assert mean_of({"de": 10.0, "el": None, "fr": 20.0}) == 15.0
    assert mean_of({"de": None}) is None
    assert mean_of({}) is None
