"""What is logged of the data as it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xlm.config.recipe import Recipe
from xlm.mixing.ledger import RunningLedger
from xlm.mixing.seen import Seen
from xlm.training.assembly import TrainingInputs


def drawn_metrics(recipe: Recipe, inputs: TrainingInputs) -> Callable[[int, Seen], Mapping[str, float]]:
    """Return what gives, at a step, the ledger and what this process fetched of shards that lie elsewhere."""
    ledger = RunningLedger(inputs.plan)
    # Loader workers fetch for themselves; zeros of a process that fetches nothing would say something else.
    fetches_here = recipe.shards.storage is not None and recipe.training.loader.workers == 0

    def metrics(step: int, seen: Seen) -> Mapping[str, float]:
        return {**ledger.metrics(step, seen), **(inputs.store.statistics().metrics() if fetches_here else {})}

    return metrics
