"""The line of a logged step: what is in it, in how much room."""

import re

from xlm.training.console import WIDEST, clock, console_line, validation_line

RECORD = {
    "step": 1200,
    "phase": "short",
    "loss": 4.12345,
    "loss/mlm": 4.4021,
    "loss/tlm": 3.9106,
    "loss/mlm/de": 4.0,
    "accuracy/mlm": 0.2,
    "learning_rate": 9.8e-4,
    "gradient_norm": 0.9178,
    "skipped_steps": 0,
    "tokens": 1_000_000,
    "tokens_per_second": 12345.6,
    "wall_s": 80.0,
    "mfu": 0.4123,
    "time_left_s": 3723.2,
    "epochs/median": 0.31,
    "epochs/most": 4.07,
    "peak_memory_bytes": 3 * 2**30,
}


def test_everything_in_one_line():
    assert console_line(RECORD, 10_000) == (
        "step  1,200/10,000  loss  4.1235  mlm 4.402 tlm 3.911  lr 9.8e-04  grad  0.92     12,346 tokens/s  mfu 41.2%  "
        "epochs 0.3-4.1  left 1:02:03  3.0 GiB"
    )


def test_lines_stand_under_each_other_and_leave_out_what_is_not_known():
    early = {**RECORD, "step": 10, "tokens_per_second": 987.0, "gradient_norm": 12.5, "loss": 11.2}
    first, second = console_line(early, 10_000), console_line(RECORD, 10_000)
    assert [match.start() for match in re.finditer("loss|lr|grad|tokens/s|mfu", first)] == [
        match.start() for match in re.finditer("loss|lr|grad|tokens/s|mfu", second)
    ]
    unknown = {name: value for name, value in RECORD.items() if name not in ("mfu", "epochs/most", "peak_memory_bytes", "time_left_s")}
    assert not re.search("mfu|epochs|GiB|left", console_line(unknown, 10_000))


def test_many_objectives_are_counted_where_they_find_no_room():
    measures = (
        "mlm",
        "tlm",
        "contrastive",
        "clm",
        "nsp",
        "sop",
        "rtd",
        "nsp_sentence",
        "sop_sentence",
        "rtd_discriminator",
        "rtd_replaced",
    )
    line = console_line({**RECORD, **{f"loss/{name}": 1.0 for name in measures}, "skipped_steps": 12}, 1_000_000)
    assert len(line) <= WIDEST
    shown, left_out = line.count(" 1.000"), int(re.search(r"\+(\d+)", line)[1])
    assert shown + left_out == len(measures)
    assert shown
    assert line.endswith("skipped 12")


def test_a_step_that_was_not_applied_has_no_loss_and_no_norm():
    line = console_line({**RECORD, "loss": None, "gradient_norm": None, "skipped_steps": 1}, 10)
    assert "no step applied" in line
    assert "grad     -" in line


def test_validation_has_a_line_where_there_was_one():
    assert validation_line(RECORD) is None
    found = {"validation/loss": 4.2, "validation/tlm": 4.2, "validation/accuracy/tlm": 0.305}
    assert validation_line({**RECORD, "validation/loss": None, "validation/mlm": None}) == "validation after step 1,200: loss is not finite"
    assert validation_line({**RECORD, **found}) == "validation after step 1,200: loss 4.2000; tlm 4.200 (30.5% right)"


def test_time_left_has_days_where_it_is_long():
    assert [clock(seconds) for seconds in (59.6, 3600.0, 200_000.0)] == ["0:01:00", "1:00:00", "2 d 7:33:20"]
