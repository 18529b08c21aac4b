"""The learning rate as a function of the step alone.

A scheduler object would be state to save, and DeepSpeed does not save one passed from outside; a
function of the step resumes at any step without history.
"""

from __future__ import annotations

import math

from xlm.config.recipe import Recipe
from xlm.config.training import ScheduleSection


def learning_rate_at(recipe: Recipe, step: int, phase: int) -> float:
    """Return the learning rate of a step of a run, which lies in the phase of that index: the run's shape, at the phase's peak."""
    peak = recipe.phases[phase].learning_rate or recipe.training.optimizer.learning_rate
    return learning_rate(recipe.training.schedule, peak, step, recipe.total_steps)


def learning_rate(schedule: ScheduleSection, peak: float, step: int, total_steps: int) -> float:
    """Return the learning rate of a step in ``range(total_steps)``.

    Warm-up is linear, (step + 1) / (warmup_steps + 1), so that no step is wasted at rate 0 and the peak
    is reached at ``step == warmup_steps``. After it, with x = progress from 0 to 1 and f = final_share:
    linear 1 - (1 - f) x, cosine f + (1 - f) (1 + cos(pi x)) / 2 (Loshchilov & Hutter 2017), constant 1,
    inverse_square_root max(f, sqrt((w + 1) / (step + 1))) (Vaswani et al. 2017, scaled to the peak), and
    warmup_stable_decay 1 up to the last decay_share of the steps, there with x the progress through them
    f + (1 - f) (1 - sqrt(x)) (Hägele et al. 2024).
    """
    warmup = schedule.warmup_steps
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(total_steps - warmup, 1)
    final = schedule.final_share
    if schedule.kind == "constant":
        share = 1.0
    elif schedule.kind == "linear":
        share = 1.0 - (1.0 - final) * progress
    elif schedule.kind == "cosine":
        share = final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * progress))
    elif schedule.kind == "warmup_stable_decay":
        decay_start = max(warmup, total_steps - round(schedule.decay_share * total_steps))
        decayed = max(0, step - decay_start) / max(total_steps - decay_start, 1)
        share = final + (1.0 - final) * (1.0 - math.sqrt(decayed))
    else:
        share = max(final, math.sqrt((warmup + 1) / (step + 1)))
    return peak * share
