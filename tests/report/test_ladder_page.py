from __future__ import annotations

from pathlib import Path

from xlm.report.ladder_page import draw_ladder_means, ladder_page, markdown_table


def rung(name: str, title: str, mean: float, losses: dict | None = None) -> dict:
    entry = {"languages": {"de": mean + 1, "ru": mean - 1}, "mean": mean, "without_dev": mean - 2, "seeds": [mean - 0.5, mean + 0.5]}
    return {
        "name": name,
        "title": title,
        "intents": {"probe": entry, "code_switched_training": {**entry, "mean": mean + 4}},
        "retrieval": 97.26,
        "losses": losses or {"mlm": None, "tlm": None},
    }


RESULTS = {
    "recipe": "quickstart",
    "ladder": "pipelines/ladders/quickstart.yaml",
    "tokens": 6_881_280,
    "seeds": [1, 2],
    "mean_languages": ["de", "ru"],
    "dev_languages": ["ru"],
    "rungs": [rung("mlm", "MLM", 20.0), rung("tlm", "MLM + TLM", 30.0, {"mlm": 5.1234, "tlm": 4.0})],
    "beside": [rung("hour", "for an hour", 44.0)],
    "comparisons": [
        {
            "rung": "tlm",
            "against": "mlm",
            "system": "probe",
            "against_system": "probe",
            "languages": {
                "de": {"gain": 12.0, "interval": [9.0, 15.0], "p": 0.001, "p_holm": 0.002},
                "ru": {"gain": 1.0, "interval": [-2.0, 4.0], "p": 0.4, "p_holm": 0.4},
            },
            "mean": {"gain": 10.0, "interval": [8.0, 12.0]},
        }
    ],
}


def test_the_page_says_what_each_rung_adds_and_where_it_is_clear() -> None:
    page = ladder_page(RESULTS)
    assert "every rung sees 6,881,280 tokens, with 2 pretraining seeds (1, 2)" in page
    assert "| MLM + TLM | frozen probe | +10.0 [8.0, 12.0] | de +12.0 | 1 of 2 |" in page
    assert "| MLM + TLM | 30.0 (29.5–30.5) | 34.0 (29.5–30.5) | 97.3 | 5.123 | 4.000 |" in page
    assert "| for an hour | 44.0" in page
    assert "| MLM + TLM | 28.0 | 28.0 |" in page
    assert "With 2 seeds resampling carries 1 parts in 2" in page
    assert page.count("\n| --- |") == 6


def test_every_row_is_as_long_as_its_head() -> None:
    lines = [line for line in ladder_page(RESULTS).splitlines() if line.startswith("|")]
    widths = [line.count("|") for line in lines]
    heads = [number for number, line in enumerate(lines) if set(line) <= set("|- ")]
    for start, end in zip(heads, [*heads[1:], len(lines) + 1], strict=True):
        assert len(set(widths[start - 1 : end - 1])) == 1
    assert markdown_table(["a", "b"], [["1", "2"]]) == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    path = draw_ladder_means(RESULTS, tmp_path / "results")
    assert path is not None
    svg = path.read_text(encoding="utf-8")
    assert "MLM + TLM" in svg
    assert (tmp_path / "results" / "ladder.png").stat().st_size > 1000
    assert draw_ladder_means({**RESULTS, "rungs": [{**rung("a", "A", 1.0), "intents": {}}]}, tmp_path) is None
