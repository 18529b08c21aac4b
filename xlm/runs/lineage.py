"""Whether the stages in a run folder were made from one another.

Each stage checks only its own inputs when it runs. Stages can be run one by one, so before anything is
scored or reported the whole chain is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from xlm.errors import UserError
from xlm.runs.folder import RunFolder
from xlm.runs.stage import StageRecord, read_record

# Folders of a run in the order data flows.
STAGES = ("normalised", "tasks", "corpus", "vocabulary", "shards", "embeddings", "train", "zero_shot", "code_switching")
SCORES = frozenset({"zero_shot", "code_switching"})


def stage_records(run: RunFolder) -> dict[str, StageRecord]:
    """Return the record of every finished stage, in the order data flows."""
    records: dict[str, StageRecord] = {}
    for name in STAGES:
        folder = run.root / name
        if folder.is_dir():
            records[name] = read_record(folder)
    return records


def check_lineage(records: Mapping[str, StageRecord], run: Path, *, scored: bool = True) -> None:
    """Raise UserError where a stage was made from another version of a stage than the one at hand.

    An input with another stage's name holds that stage's fingerprint, or the one its summary states for its
    content. So a corpus from which other evaluation sets, or none, were kept out is never scored on these.
    A run that is not ``scored`` leaves evaluation sets of an earlier one out of account.
    """
    if not scored:
        records = {name: record for name, record in records.items() if name not in SCORES | {"tasks"}}
    for name, record in records.items():
        for source, found in record.inputs.items():
            # "": the recipe has no use for that stage, whatever of an earlier one lies in the folder.
            if source == name or source not in records or found == "":
                continue
            if found not in (records[source].fingerprint, records[source].summary.get("fingerprint")):
                raise UserError(
                    f"'{name}' was made from another '{source}' than the one in this run folder, so its numbers do not belong "
                    "together; run pipelines/quickstart.py with the same options, which makes anew what is out of date.",
                    file=run,
                )


def check_before_scoring(run: RunFolder) -> None:
    """Raise UserError unless what is to be scored was made from the evaluation sets and text at hand; older scores do not count."""
    records = {name: record for name, record in stage_records(run).items() if name not in SCORES}
    check_lineage(records, run.root)
