"""The ledger's figure: rows for few languages, ranks for many."""

from __future__ import annotations

import pytest

from tests.report.made_up_ledger import made_up_ledger
from xlm.report.figure_style import figure_style
from xlm.report.figures import rendered
from xlm.report.ledger_figure import ROW_LANGUAGES, draw_ledger


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
