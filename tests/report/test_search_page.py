from __future__ import annotations

from xlm.report.search_page import search_page


def candidate(name: str, probe: float, changes: list[str]) -> dict:
    scores = {"probe": {"es": probe + 1, "ru": probe - 1, "mean": probe}, "retrieval": {"es": 97.0, "ru": 95.0, "mean": 96.0}}
    return {"name": name, "title": name.title(), "set": changes, "scores": scores, "train_s": 300.0, "tokens": 6.9e6}


def test_the_best_on_dev_text_comes_first() -> None:
    page = search_page(
        "quickstart", "searches/x.yaml", ["es", "ru"], [candidate("low", 30.0, []), candidate("high", 40.0, ["a.b=1", "c=2"])]
    )
    rows = [line for line in page.splitlines() if line.startswith("|")][2:]
    assert rows == [
        "| High | 40.0 (es 41.0, ru 39.0) | 96.0 (es 97.0, ru 95.0) | 6.9 | 5 | `a.b=1`<br>`c=2` |",
        "| Low | 30.0 (es 31.0, ru 29.0) | 96.0 (es 97.0, ru 95.0) | 6.9 | 5 | as it is |",
    ]
    assert "no test sentence was read" in page
