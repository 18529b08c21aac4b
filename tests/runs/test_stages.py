"""What a recipe plans, tests/pipelines/test_quickstart.py shows with the script that runs it."""

from pathlib import Path

import pytest

from xlm.errors import UserError
from xlm.runs.stages import Step, steps_until


def test_it_may_stop_after_a_stage() -> None:
    steps = [Step(f"{name}.py", Path(name), name) for name in ("one", "two", "three")]
    assert steps_until(steps, None) == steps
    assert [step.script for step in steps_until(steps, "two.py")] == ["one.py", "two.py"]
    with pytest.raises(UserError, match=r"--until 'tow.py' is no stage of this recipe \(did you mean 'two.py'\?\); there are: one.py"):
        steps_until(steps, "tow.py")
