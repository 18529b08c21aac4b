"""A training's run in MLflow: opened in the background, closed as the training ends, and sent later what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from xlm.config.recipe import Recipe
from xlm.runs.folder import RunFolder
from xlm.tracking.json_lines import JsonLines
from xlm.tracking.run_card import run_card
from xlm.tracking.tracker import Tracker
from xlm.training.run_record import RunRecord, read_run_record, with_mlflow_run, write_run_record
from xlm.training.training_log import METRICS

# How long a training that failed waits for MLflow to hear of it.
FAILED_CLOSE_TIMEOUT_S = 10.0


def start_tracker(recipe: Recipe, folder: RunFolder, record: RunRecord, parent: str | None) -> Tracker:
    """Open the run's MLflow run in the background, shown below the one whose key is ``parent``."""
    root = folder.root
    tracker = Tracker(
        root,
        key=record.tracking_key,
        name=root.resolve().name,
        parameters={**record.recipe, "precision": record.precision, "world_size": record.world_size, "inputs": record.inputs},
        parent=parent,
        card=partial(
            run_card, root, recipe=recipe.model_dump(mode="json"), manifest=recipe.corpora.manifest, deepspeed=dict(record.deepspeed)
        ),
        lines=JsonLines(folder.train / METRICS),
        with_system_metrics=True,
    )
    tracker.start()
    return tracker


@contextmanager
def ended_as_failed(tracker: Tracker | None) -> Iterator[None]:
    """Where training fails, let its MLflow run say so; it goes on when training does."""
    try:
        yield
    except BaseException:
        if tracker is not None:
            tracker.close("FAILED", timeout_s=FAILED_CLOSE_TIMEOUT_S)
        raise


def close_tracker(tracker: Tracker, status: str, folder: RunFolder, record: RunRecord, timeout_s: float | None = None) -> None:
    """Close the MLflow run, and keep in the run's record whether it has everything."""
    tracker.close(status, timeout_s)
    write_run_record(folder.train, with_mlflow_run(record, tracker.run_id, complete=tracker.is_complete))


def send_what_mlflow_missed(recipe: Recipe, folder: RunFolder, parent: str | None) -> None:
    """Of a finished training, send what a server that did not answer at its end still lacks."""
    record = read_run_record(folder.train)
    if record is None or record.mlflow_complete:
        return
    tracker = start_tracker(recipe, folder, record, parent)
    tracker.resume()
    close_tracker(tracker, "FINISHED", folder, record)
