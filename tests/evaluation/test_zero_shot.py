"""The parts of the runner; the whole of it runs in tests/integration/test_evaluation_stages.py."""

import numpy as np
import pyarrow.parquet as pq

from xlm.evaluation.intent_systems import System
from xlm.evaluation.intent_task import IntentTask, Sentences
from xlm.evaluation.zero_shot import summary_table, write_predictions


def test_predictions_are_written_by_name(tmp_path):
    gold = Sentences(("a", "b"), ("x", "y"), np.array([0, 1]), ("t1", "t2"))
    task = IntentTask(("Light", "Door"), gold, gold, {"de": gold}, {"de": {}}, {}, (4, 5), ())
    systems = [System("probe", {"de": np.array([[0, 1], [1, 1]])}), System("chance", {"de": np.array([[0, 0]])})]
    write_predictions(tmp_path / "predictions", task, systems)
    assert pq.read_table(tmp_path / "predictions" / "de.parquet").to_pydict() == {
        "id": ["a", "b"],
        "template": ["t1", "t2"],
        "label": ["Light", "Door"],
        "probe:4": ["Light", "Door"],
        "probe:5": ["Door", "Door"],
        "chance": ["Light", "Light"],
    }


def test_one_seed_keeps_systems_apart(tmp_path):
    gold = Sentences(("a",), ("x",), np.array([0]), ("t1",))
    task = IntentTask(("Light",), gold, gold, {"de": gold}, {"de": {}}, {}, (4,), ())
    write_predictions(tmp_path, task, [System("probe", {"de": np.array([[0]])}), System("chance", {"de": np.array([[0]])})])
    assert pq.read_table(tmp_path / "de.parquet").column_names == ["id", "template", "label", "probe:4", "chance:4"]


def test_summary_has_a_line_a_language():
    systems = {"probe": {"accuracy": 36.04}, "character_floor": {"accuracy": 17.0}}
    found = {"systems": {"encoder": {"top1_200": {"mean": 94.0}, "top1_2000": None}}}
    scores = {
        "intents": {"languages": {"en": {"systems": systems}, "de": {"systems": systems}}},
        "retrieval": {"languages": {"de": found}},
    }
    lines = summary_table(scores).splitlines()
    assert len(lines) == 3
    assert lines[1].split() == ["en", "36.0", "17.0", "-", "-"]
    assert lines[2].split() == ["de", "36.0", "17.0", "94.0", "-"]
