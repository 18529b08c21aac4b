import json
from pathlib import Path

import xlm.report.ladder_results as ladder_results
from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.report.ladder_results import described, rows_by_length
from xlm.runs.folder import RunFolder

ROOT = Path(__file__).resolve().parents[2]


def test_a_rung_is_described_by_the_scores_of_its_runs(tmp_path, monkeypatch):
    runs = []
    for number, loss in ((1, 5.0), (2, 6.0)):
        (tmp_path / str(number)).mkdir()
        scores = {"summary": {"retrieval.top1_200": 90.0 + number}, "training": {"validation": {"validation/mlm": loss}}}
        (tmp_path / str(number) / "scores.json").write_text(json.dumps(scores), encoding="utf-8")
        runs.append(RunFolder(tmp_path / str(number)))
    monkeypatch.setattr(ladder_results, "rung_scores", lambda *_: {"probe": {}})
    found = described("mlm", "MLM", runs, None, ("de",), ())
    assert found["retrieval"] == 91.5
    assert found["losses"] == {"mlm": 5.5, "tlm": None}


def test_tokens_are_counted_with_batch_warm_up():
    path = ROOT / "pipelines" / "recipes" / "quickstart.yaml"
    plain = rows_by_length(load_config(Recipe, path))
    assert plain == [(560 * 96, 128)]
    warm = rows_by_length(load_config(Recipe, path, ["training.batch_warmup={start_tokens: 4096, steps: 100}"]))
    assert 460 * 96 < warm[0][0] < 560 * 96
