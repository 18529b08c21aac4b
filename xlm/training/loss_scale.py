"""The loss scale of fp16: gradients below 6e-8 would be zero there, so that backward starts from a multiple of the loss.

Dynamic loss scaling (Micikevicius et al. 2018, section 3.2): the scale is halved by a step whose gradient is not finite, which
changes no weights, and doubled after ``window`` finite steps in a row. It is kept here and told to DeepSpeed (0.19) as a fixed
one, because its own scaler doubles the scale before the step's gradient has been divided by it: that step's is half as long.
"""

from __future__ import annotations

from collections.abc import Mapping

from xlm.config.training import LossScaleSection


class LossScale:
    """A power of two that follows what the steps show; the same on every rank, since all see one global gradient."""

    def __init__(self, section: LossScaleSection) -> None:
        self.value = max(2.0**section.initial_power, section.minimum)
        self._window, self._minimum = section.window, section.minimum
        self._finite_steps = 0

    def follow(self, finite: bool) -> bool:
        """Take in whether a step's gradient was finite; return whether a scale that could be lowered may be why it was not."""
        if finite:
            self._finite_steps += 1
            if self._finite_steps == self._window:
                self.value, self._finite_steps = self.value * 2.0, 0
            return False
        self._finite_steps = 0
        lowered = max(self.value / 2.0, self._minimum)
        too_high = lowered < self.value
        self.value = lowered
        return too_high

    def state(self) -> dict[str, float]:
        """Return what a resumed run needs to know."""
        return {"value": self.value, "finite_steps": float(self._finite_steps)}

    def load(self, state: Mapping[str, float]) -> None:
        """Take up `state`."""
        self.value, self._finite_steps = float(state["value"]), int(state["finite_steps"])
