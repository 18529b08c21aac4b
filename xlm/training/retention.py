"""Which checkpoints stay: the last ones, every so many steps one for good, the best by validation loss.

A rule over what is there: after a save it is given every complete checkpoint and names those to remove. The one just
written is whole and always stays, so that there is a good one at any moment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from xlm.config.training import CheckpointSection


def superfluous(losses: Mapping[int, float | None], written: int, section: CheckpointSection) -> list[int]:
    """Return the steps whose checkpoints are to be removed, oldest first, once the one of step ``written`` stands.

    ``losses`` has every complete checkpoint by its step, ``written`` among them, with its validation loss if it has
    one. Checkpoints of later steps than ``written`` were passed over as damaged when training was taken up.
    """
    standing = sorted(step for step in losses if step <= written)
    kept = {written, *standing[-section.keep_last :]}
    if section.keep_every_steps is not None:
        kept.update(step for step in standing if step % section.keep_every_steps == 0)
    best = best_step({step: losses[step] for step in standing})
    if section.keep_best and best is not None:
        kept.add(best)
    return sorted(set(losses) - kept)


def best_step(losses: Mapping[int, float | None]) -> int | None:
    """Return the step of the lowest loss, the earliest of equal ones; None where none has a finite one."""
    finite = [(loss, step) for step, loss in losses.items() if loss is not None and math.isfinite(loss)]
    return min(finite)[1] if finite else None
