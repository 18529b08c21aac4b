"""The ledger's figure: rows for few languages, ranks for many."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.report.made_up_ledger import made_up_ledger
from xlm.report.figure_style import figure_style
from xlm.report.figures import rendered
from xlm.report.ledger_figure import ROW_LANGUAGES, draw_ledger, draw_timeline


@pytest.mark.parametrize("cap", [4.0, None])
def test_few_languages_are_rows(cap):
    with figure_style():
        figure, *_ = draw_ledger(made_up_ledger(["en", "de", "sw"], cap))
    left, right = figure.axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["en", "de", "sw"]
    assert len(left.patches) == 6  # two objectives a language
    assert right.get_xlabel() == "times seen (epochs)"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["mlm", "tlm", "epochs", "text begins to repeat", *(["cap"] if cap else [])]


def test_many_languages_are_points_by_rank():
    languages = [f"l{number}" for number in range(ROW_LANGUAGES + 1)]
    with figure_style():
        drawn = draw_ledger(made_up_ledger(languages))
        figure = rendered("ledger", drawn)
    upper, lower = drawn[0].axes
    assert upper.get_xscale() == lower.get_yscale() == "log"
    assert len(lower.collections[0].get_offsets()) == len(languages)
    assert figure.alt.startswith("41 languages, ")
    assert "is seen most often: 4.00 times" in figure.alt
    assert figure.png.startswith(b"\x89PNG")
    assert "<svg" in figure.svg


def test_a_cap_far_out_is_told_in_words():
    ledger = made_up_ledger(["en", "de"], 4.0)
    far = replace(ledger, languages=tuple(replace(total, max_epochs=100.0) for total in ledger.languages))
    with figure_style():
        figure, *_ = draw_ledger(far)
    assert figure.axes[1].get_xlabel() == "times seen (epochs); cap 100"
    assert figure.axes[1].get_xlim()[1] < 10
    assert "cap" not in [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_timeline_stacks_to_a_hundred_percent():
    ledger = made_up_ledger(["en", "de", "sw", "yo"])
    with figure_style():
        drawn = draw_timeline(ledger)
    assert drawn is not None
    figure, _, _, alt = drawn
    assert "mlm from 75 to 25 %, tlm from 25 to 75 %" in alt
    for axes in figure.axes:
        bands = [patch.get_data() for patch in axes.patches]
        assert bands[-1].values.tolist() == pytest.approx([100, 100])
        for below, above in pairwise(bands):
            assert above.baseline == pytest.approx(below.values)
    assert {text.get_text() for text in figure.axes[0].texts} == {"mlm", "tlm"}


def one_phase(languages, change):
    """A ledger of one phase and ten stretches of 10,000 rows of one objective, whose tokens by language ``change`` gives."""
    ledger = made_up_ledger(languages)
    first = replace(ledger.timeline[0], rows_by_objective={"mlm": 10_000}, other_tokens=0)
    stretches = (
        replace(first, first_step=56 * number, stop_step=56 * (number + 1), tokens_by_language=change(number)) for number in range(10)
    )
    return replace(ledger, entries=tuple(entry for entry in ledger.entries if entry.phase == "short"), timeline=tuple(stretches))


def test_a_run_in_which_nothing_changes_has_no_timeline():
    # A row more or less, now and then, is no change.
    assert draw_timeline(one_phase(["en", "de"], lambda number: {"en": 900_000 + number % 2 * 120, "de": 300_000})) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda number: {"en": 900_000 - 60_000 * number, "de": 300_000 + 60_000 * number}, "de from 25 to 70 %, en from 75 to 30 %"),
        (lambda number: {"en": 1_200_000 - 60_000 * (number < 6), "de": 60_000 * (number < 6)}, "de from 5 to 0 %, en from 95 to 100 %"),
    ],
    ids=["ramp", "cap"],
)
def test_languages_that_change_with_no_objective_changing_have_a_timeline(change, told):
    with figure_style():
        drawn = draw_timeline(one_phase(["en", "de"], change))
    assert drawn is not None
    assert drawn[3].endswith(f"Of the rows: mlm from 100 to 100 %, tlm from 0 to 0 %. Of the tokens: {told}.")
