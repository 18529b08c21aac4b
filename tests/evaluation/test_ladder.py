import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xlm.errors import UserError
from xlm.evaluation.ladder import Answers, compare_rungs, difference, rung_scores

SENTENCES = 120
TEMPLATES = [f"t{number // 4}" for number in range(SENTENCES)]
GOLD = [f"label{number % 5}" for number in range(SENTENCES)]


def write_run(folder, accuracies, *, seed=0, ids=None):
    """Predictions of a run: the systems' share of right answers, by language, from two seeds of a classifier."""
    (folder / "predictions").mkdir(parents=True)
    for language in ("de", "el"):
        rng = np.random.default_rng([seed, len(language)])
        columns = {"id": ids or [str(number) for number in range(SENTENCES)], "template": TEMPLATES, "label": GOLD}
        for system, accuracy in accuracies.items():
            for own in (1, 2):
                right = rng.random(SENTENCES) < accuracy
                columns[f"{system}:{own}"] = [label if good else "wrong" for label, good in zip(GOLD, right, strict=True)]
        columns["chance"] = ["label0"] * SENTENCES
        pq.write_table(pa.table(columns), folder / "predictions" / f"{language}.parquet")
    return folder


@pytest.fixture
def rungs(tmp_path):
    low = [write_run(tmp_path / f"low{seed}", {"probe": 0.3, "finetuned": 0.3}, seed=seed) for seed in (1, 2, 3)]
    high = [write_run(tmp_path / f"high{seed}", {"probe": 0.8, "finetuned": 0.3}, seed=10 + seed) for seed in (1, 2, 3)]
    return {"low": Answers(low), "high": Answers(high)}


def test_shares_are_means_over_a_runs_own_seeds(rungs):
    shares = rungs["low"].shares("de", "probe")
    assert shares.shape == (3, SENTENCES)
    assert set(np.unique(shares)) <= {0.0, 0.5, 1.0}
    assert rungs["low"].shares("de", "chance").mean() == pytest.approx(0.2)
    assert rungs["low"].shares("de", "bag") is None


def test_scores_of_a_rung(rungs):
    scores = rung_scores(rungs["high"], ("probe", "absent"), ("de", "el"), ("el",))
    assert scores["probe"]["without_dev"] == scores["probe"]["languages"]["de"]
    assert set(scores) == {"probe"}
    assert 70 < scores["probe"]["mean"] < 90
    assert len(scores["probe"]["seeds"]) == 3
    assert scores["probe"]["mean"] == pytest.approx(np.mean(scores["probe"]["seeds"]), abs=1e-3)
    assert set(scores["probe"]["languages"]) == {"de", "el"}


def test_a_gain_is_clear_and_none_is_not(rungs):
    gain = difference((rungs["high"], "probe"), (rungs["low"], "probe"), ("de", "el"), samples=500)
    for entry in gain["languages"].values():
        assert entry["interval"][0] > 0
        assert entry["p_holm"] < 0.05
        assert entry["p"] <= entry["p_holm"]
    assert gain["mean"]["interval"][0] < gain["mean"]["gain"] < gain["mean"]["interval"][1]
    none = difference((rungs["high"], "finetuned"), (rungs["low"], "finetuned"), ("de", "el"), samples=500)
    assert all(entry["p_holm"] > 0.05 for entry in none["languages"].values())
    itself = difference((rungs["low"], "probe"), (rungs["low"], "probe"), ("de",), samples=100)
    assert itself["languages"]["de"] == {"gain": 0.0, "interval": [0.0, 0.0], "p": 1.0, "p_holm": 1.0}
    assert difference((rungs["low"], "bag"), (rungs["low"], "probe"), ("de",), samples=100) is None


def test_every_rung_is_compared_with_the_one_below_and_systems_inside_it(rungs):
    found = compare_rungs(rungs, ("probe", "finetuned"), (("finetuned", "probe"),), ("de",), samples=100)
    named = [(one["rung"], one["against"], one["system"], one["against_system"]) for one in found]
    assert named == [
        ("high", "low", "probe", "probe"),
        ("high", "low", "finetuned", "finetuned"),
        ("low", "low", "finetuned", "probe"),
        ("high", "high", "finetuned", "probe"),
    ]


def test_runs_scored_on_other_sentences_are_named(tmp_path, rungs):
    other = write_run(tmp_path / "other", {"probe": 0.5}, ids=[f"x{number}" for number in range(SENTENCES)])
    with pytest.raises(UserError, match="scored on other sentences than the first one"):
        Answers([tmp_path / "low1", other]).sentences("de")
    with pytest.raises(UserError, match="two rungs were scored on other sentences in 'de'"):
        difference((Answers([other] * 3), "probe"), (rungs["low"], "probe"), ("de",), samples=100)
