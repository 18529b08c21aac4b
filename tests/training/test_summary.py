import dataclasses

import pytest

from xlm.mixing.seen import Seen
from xlm.training.loop import LoopResult
from xlm.training.run_record import RunRecord
from xlm.training.summary import peak_memory, summary_lines, training_summary

RECORD = RunRecord({}, "f", {"zero_optimization": {"stage": 2}}, "bf16", 2, {}, ("en", "zh-Hans"), "key", "code", {})
LINES = [
    {"step": 5, "tokens": 1000, "tokens_per_second": 100.0, "peak_memory_bytes": 3 * 2**30, "loss": 2.0},
    {
        "step": 10,
        "tokens": 3000,
        "tokens_per_second": 400.0,
        "peak_memory_bytes": 2 * 2**30,
        "loss": 1.5,
        "loss/mlm": 3.5,
        "loss/mlm/en": 3.0,
        "accuracy/mlm": 0.3125,
        "validation/loss": 3.25,
        "validation/mlm": 3.25,
        "validation/mlm/en": 3.25,
        "validation/accuracy/mlm": 0.25,
        "validation/accuracy/mlm/en": 0.25,
    },
]


SEEN = Seen(
    {("short", "mlm", "en"): 1500, ("long", "mlm", "en"): 500, ("short", "tlm", "zh-Hans"): 1000},
    {("short", "mlm"): 15, ("long", "mlm"): 5, ("short", "tlm"): 10},
)


def summary(skipped=0):
    return training_summary(RECORD, LoopResult(10, True, skipped, SEEN, LINES[-1]), LINES, 7_400_000)


def test_speed_is_tokens_over_the_time_of_steps():
    # 1,000 tokens took 10 s and 2,000 took 5 s.
    assert summary()["tokens_per_second"] == pytest.approx(200.0)
    assert summary()["tokens"] == 3000
    assert summary()["tokens_by_language"] == {"en": 2000, "zh-Hans": 1000}
    assert summary()["losses"] == {"loss": 1.5, "loss/mlm": 3.5, "loss/mlm/en": 3.0}


def test_a_run_says_whether_its_code_changed_on_the_way():
    assert summary()["code_changed_on_resume"] is False
    changed = dataclasses.replace(RECORD, starts=({"code": "a", "versions": {}}, {"code": "b", "versions": {}}))
    about = training_summary(changed, LoopResult(10, True, 0, SEEN, LINES[-1]), LINES, 1)
    assert about["code_changed_on_resume"] is True


def test_memory_is_the_most_of_all_starts():
    assert peak_memory(LINES, 2**30) == 3 * 2**30
    assert peak_memory([], 5) == 5


def test_a_person_sees_languages_speed_and_what_was_skipped():
    shown = "\n".join(summary_lines(summary(), 75.0, 2**31))
    assert "zh-Hans           1,000   33.3%" in shown
    assert "10 steps, 3,000 tokens at 200 a second, 7,400,000 parameters, bf16, ranks 2, ZeRO 2" in shown
    assert "75 s, 2.0 GiB; last losses: mlm 3.500" in shown
    assert "last accuracies: mlm 31.2%" in shown
    assert "en          3.250  25.0%" in shown
    assert "last validation: loss 3.2500 (mlm 3.250)" in shown
    assert "skipped" not in shown
    assert "10 steps (3 skipped: their gradients were not finite)" in "\n".join(summary_lines(summary(3), 1.0, 1))
