"""One run in an MLflow store, found again by its key; whatever fails here raises, and the caller tries again.

The key stands in a tag from the moment the run exists, and in ``run.json`` before that, so that a kill between making
the run and noting its id makes no second one. A slow server can make one twice, when a call was given up and its repetition
overtook it: the one with parameters counts, the empty other is deleted. Import of mlflow is left to the first call.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from xlm.tracking.delivery import Metric, RejectedError
from xlm.tracking.run_card import RunCard
from xlm.tracking.store import artifacts_of, make_sqlite_store, set_http_defaults

TAG = "xlm.training_run"
CARD_TAG = "xlm.run_card"
PARENT_TAG = "mlflow.parentRunId"
EXPERIMENT = "xlm"
# The UI then shows runs and curves instead of traces and prompts.
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
PARAMETERS_A_CALL = 100
PARAMETER_CHARACTERS = 6000
# What a server means for good: the same call would be refused again.
_FINAL = frozenset({"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"})


class MlflowRun:
    """The run with a key: opened, or made; a `Sink` for metrics."""

    def __init__(self, uri: str, key: str, name: str, parameters: Mapping[str, Any] | None = None, parent: str | None = None) -> None:
        """``parent`` is the key of the run that this one is shown below."""
        set_http_defaults()
        from mlflow.tracking import MlflowClient

        logging.getLogger("alembic").setLevel(logging.WARNING)
        make_sqlite_store(uri)
        self._uri, self._key = uri, key
        self._client = MlflowClient(tracking_uri=uri)
        self._experiment = self._find_experiment()
        found = self._find(key)
        self.is_new = found is None
        if found is None:
            tags = {TAG: key}
            if parent is not None:
                # The parent has no parameters of its own and its name is its key.
                tags[PARENT_TAG] = MlflowRun(uri, parent, parent).run_id
            self.run_id: str = self._client.create_run(self._experiment, run_name=name, tags=tags).info.run_id
            logged: Mapping[str, str] = {}
            self.has_card = False
        else:
            self.run_id = found.info.run_id
            logged = found.data.params
            self.has_card = CARD_TAG in found.data.tags
            if found.info.status != "RUNNING":
                self._client.update_run(self.run_id, status="RUNNING")
        self._log_parameters({name: value for name, value in flatten(parameters or {}).items() if name not in logged})

    def send(self, metrics: list[Metric]) -> None:
        """Write the metrics of one call."""
        from mlflow.entities import Metric as MlflowMetric
        from mlflow.exceptions import MlflowException

        try:
            self._client.log_batch(self.run_id, metrics=[MlflowMetric(*metric) for metric in metrics])
        except MlflowException as error:
            if error.error_code in _FINAL and not self._is_deleted():
                raise RejectedError(str(error)) from error
            raise

    def _is_deleted(self) -> bool:
        """Return whether somebody has deleted the run, who may also restore it."""
        return str(self._client.get_run(self.run_id).info.lifecycle_stage) == "deleted"

    def steps_of(self, name: str) -> set[int]:
        """Return the steps at which the server has a metric."""
        return {int(metric.step) for metric in self._client.get_metric_history(self.run_id, name)}

    def log_card(self, card: RunCard) -> None:
        """Attach what the run is made of, and note that it is there."""
        for path, text in card.texts.items():
            self._client.log_text(self.run_id, text, path)
        for name, value in card.tags.items():
            self._client.set_tag(self.run_id, name, value)
        self._client.set_tag(self.run_id, CARD_TAG, "complete")
        self.has_card = True

    def log_files(self, paths: Iterable[Path], folder: str) -> None:
        """Attach files."""
        for path in paths:
            self._client.log_artifact(self.run_id, str(path), folder)

    def end(self, status: str) -> None:
        """Mark the run as FINISHED, FAILED or KILLED, and delete an empty double of it."""
        for other in self._with_key(self._key):
            if other.info.run_id != self.run_id and not other.data.params and not other.data.metrics:
                self._client.delete_run(other.info.run_id)
        self._client.set_terminated(self.run_id, status)

    def _find_experiment(self) -> str:
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        if experiment is not None:
            return str(experiment.experiment_id)
        return str(self._client.create_experiment(EXPERIMENT, artifact_location=artifacts_of(self._uri), tags=EXPERIMENT_TAGS))

    def _find(self, key: str) -> Any:  # noqa: ANN401 (mlflow has no types)
        """Return the run with a key, of doubles the one that was used, or None."""
        runs = self._with_key(key)
        return min(runs, key=lambda run: (not run.data.params, not run.data.metrics, run.info.start_time), default=None)

    def _with_key(self, key: str) -> list[Any]:
        return list(self._client.search_runs([self._experiment], filter_string=f"tags.`{TAG}` = '{key}'"))

    def _log_parameters(self, flat: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        parameters = [Param(name, str(value)[:PARAMETER_CHARACTERS]) for name, value in flat.items()]
        for start in range(0, len(parameters), PARAMETERS_A_CALL):
            self._client.log_batch(self.run_id, params=parameters[start : start + PARAMETERS_A_CALL])


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested mappings and lists into dotted names, ``{"a": {"b": [1]}}`` into ``{"a.b.0": 1}``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping):
            flat.update(flatten(value, dotted + "."))
        elif isinstance(value, list | tuple):
            flat.update(flatten({str(index): item for index, item in enumerate(value)}, dotted + "."))
        else:
            flat[dotted] = value
    return flat
