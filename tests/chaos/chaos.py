"""Kill a training on two ranks many times over, at ZeRO 1, 2, 3, saving while it waits and while it goes on; ``make test-chaos``.

Each time the same command goes on. When a run has come to its end, its whole curve and its last checkpoint, weights and
optimizer, have to be those of a run that nobody killed, bit for bit; then the next run begins, until there were enough kills.
A line an attempt is printed, and at the end a table, which is written to a file as well.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "integration")]  # a program of its own, with the made-up run of those tests

from attempts import PLACES, Ended, Kill, attempt  # noqa: E402
from made_up_run import RECIPE, make_run  # noqa: E402

from xlm.errors import UserError  # noqa: E402
from xlm.tracking.json_lines import JsonLines  # noqa: E402
from xlm.training.checkpoint import checkpoint_step, complete_checkpoints, verify_checkpoint  # noqa: E402
from xlm.training.training_log import METRICS, OF_THE_MACHINE  # noqa: E402

STAGES = (1, 2, 3)
STEPS = 40
LOG_EVERY = 3
WHOM = ("rank 0", "rank 1", "both ranks", "launcher", "tree")


def recipe_of() -> dict[str, object]:
    """Return a made-up recipe of forty small steps that saves after every second."""
    short, long = RECIPE["phases"]
    training = {
        **RECIPE["training"],
        "checkpoint": {"every_steps": 2, "keep_last": 2, "keep_every_steps": 10},
        "log_every_steps": LOG_EVERY,
    }
    return {**RECIPE, "phases": [{**short, "steps": STEPS // 2}, {**long, "steps": STEPS - STEPS // 2}], "training": training}


@dataclass
class Chaos:
    """A campaign of kills: where it works, what it has seen."""

    folder: Path
    seed: int
    step_s: float = 0.1
    attempts: int = 0
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)  # by place, by whom
    saving: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    stages: Counter[int] = field(default_factory=Counter)
    finished_runs: int = 0

    def prepare(self) -> None:
        """Make the run folder up to its shards, and train once at each stage without a kill."""
        self.recipe = make_run(self.folder, recipe_of())
        for stage in STAGES:
            run = self.fresh_run(f"reference{stage}")
            began = time.monotonic()
            ended = self.attempt(run, stage, None, "synchronous")
            if ended.code != 0:
                raise SystemExit(ended.printed)
            self.step_s = max((json_lines(run)[-1]["wall_s"] - json_lines(run)[0]["wall_s"]) / STEPS, 0.02)
            print(f"reference at ZeRO {stage}: {time.monotonic() - began:.0f} s, {self.step_s * 1000:.0f} ms a step", flush=True)

    def fresh_run(self, name: str) -> Path:
        run = self.folder / name
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(self.folder / "run", run, ignore=shutil.ignore_patterns("train"))
        return run

    def attempt(self, run: Path, stage: int, kill: Kill | None, saving: str) -> Ended:
        overrides = [f"training.checkpoint.asynchronous={'true' if saving == 'asynchronous' else 'false'}"]
        overrides.append(f"training.loader.workers={self.attempts % 2}")
        return attempt(self.recipe, run, stage, overrides, kill, self.folder, runner=self.attempts % 8 == 0)

    def kill_a_run(self, stage: int, quota: int) -> None:
        """Kill one run until it finishes or ``quota`` kills were made; then let it finish, and compare."""
        run = self.fresh_run("killed")
        made = 0
        while made < quota:
            kill = Kill.draw(self.seed, self.attempts, self.step_s)
            saving = ("synchronous", "asynchronous")[self.attempts % 2]
            before, began = latest(run), time.monotonic()
            ended = self.attempt(run, stage, kill, saving)
            self.attempts += 1
            if not ended.places:
                if ended.code != 0:
                    raise SystemExit(f"the attempt was not killed, but ended with {ended.code}:\n{ended.printed}")
                print(f"          ZeRO {stage}  {saving:12}  {kill.kind:5}  {kill.whom:10}  came too late", flush=True)
                break
            made += 1
            self.learn_speed(run)
            self.count(kill, ended, stage, saving)
            reached = self.check_checkpoints(run, before, ended)
            print(
                f"kill {self.kills.total():3}  ZeRO {stage}  {saving:12}  {kill.kind:5}  {kill.whom:10}  in {ended.place:8}  "
                f"step {before} -> {reached}  {time.monotonic() - began:.0f} s",
                flush=True,
            )
        self.attempts += 1
        ended = self.attempt(run, stage, None, "asynchronous")
        if ended.code != 0:
            raise SystemExit(f"a run that was not killed ended with {ended.code}:\n{ended.printed}")
        compare(self.folder / f"reference{stage}", run)
        self.finished_runs += 1
        print(f"run {self.finished_runs} at ZeRO {stage}: curve, weights and optimizer are those of a run never killed", flush=True)

    def learn_speed(self, run: Path) -> None:
        """Follow how busy the machine is: kills are due within so many steps."""
        times = [float(str(line["wall_s"])) for line in json_lines(run)[-5:]]
        gaps = [(later - earlier) / LOG_EVERY for earlier, later in itertools.pairwise(times)]
        self.step_s = max(min(gaps, default=self.step_s), 0.02)

    def count(self, kill: Kill, ended: Ended, stage: int, saving: str) -> None:
        self.kills[ended.place, kill.whom] += 1
        self.saving[saving] += 1
        self.kinds[kill.kind] += 1
        self.stages[stage] += 1

    def check_checkpoints(self, run: Path, before: int, ended: Ended) -> int:
        """Raise unless every visible checkpoint is whole and nothing that stood is lost; return the latest step."""
        for path in complete_checkpoints(run / "train"):
            try:
                verify_checkpoint(path)
            except UserError as error:
                raise SystemExit(f"{error}\n{ended.printed}") from None
        reached = latest(run)
        if reached < before:
            raise SystemExit(f"the checkpoint of step {before} is lost, {reached} is the latest:\n{ended.printed}")
        return reached

    def table(self) -> str:
        """Return the kills by place and by whom, and the other counts, as lines."""
        lines = [f"{'killed in':10}" + "".join(f"{whom:>12}" for whom in WHOM) + f"{'all':>8}"]
        for place in PLACES:
            row = [self.kills[place, whom] for whom in WHOM]
            lines.append(f"{place:10}" + "".join(f"{count:12}" for count in row) + f"{sum(row):8}")
        row = [sum(self.kills[place, whom] for place in PLACES) for whom in WHOM]
        lines.append(f"{'all':10}" + "".join(f"{count:12}" for count in row) + f"{sum(row):8}")
        lines.append("by " + ", ".join(f"{kind} {count}" for kind, count in sorted(self.kinds.items())))
        lines.append(", ".join(f"ZeRO {stage}: {count}" for stage, count in sorted(self.stages.items())))
        lines.append(", ".join(f"{saving}: {count}" for saving, count in sorted(self.saving.items())))
        lines.append(f"{self.attempts} starts; {self.finished_runs} runs came to their end, each as the run never killed; seed {self.seed}")
        return "\n".join(lines)


def json_lines(run: Path) -> list[dict[str, object]]:
    return list(JsonLines(run / "train" / METRICS).read())


def curve(run: Path) -> list[dict[str, object]]:
    return [{name: value for name, value in line.items() if name not in OF_THE_MACHINE} for line in json_lines(run)]


def latest(run: Path) -> int:
    steps = [checkpoint_step(path) for path in complete_checkpoints(run / "train")]
    return max(steps, default=0)


def compare(wanted: Path, found: Path) -> None:
    """Raise unless both runs have the same curve and, by the hashes of its files, the same last checkpoint."""
    curves = [curve(run) for run in (wanted, found)]
    for one, other in zip(*curves, strict=True):
        if one != other:
            raise SystemExit(f"the curves differ:\n{one}\n{other}")
    if [line["step"] for line in curves[0]][-1] != STEPS or latest(wanted) != STEPS:
        raise SystemExit("the reference did not come to its end")
    lists = [json.loads((run / "train" / "checkpoints" / f"step-{STEPS:08d}" / "complete.json").read_text()) for run in (wanted, found)]
    if lists[0] != lists[1]:
        raise SystemExit(f"the last checkpoints differ:\n{lists[0]}\n{lists[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, required=True, help="where to work; it is emptied")
    parser.add_argument("--table", type=Path, required=True, help="where the table goes")
    arguments = parser.parse_args()
    # Absolute: the ranks work in a folder of their own.
    arguments.folder, arguments.table = arguments.folder.resolve(), arguments.table.resolve()
    marker = arguments.folder / ".chaos"
    if marker.exists():
        shutil.rmtree(arguments.folder)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if any(arguments.folder.iterdir()):
        raise SystemExit(f"{arguments.folder} holds something else; give an empty folder.")
    marker.touch()
    chaos = Chaos(arguments.folder, arguments.seed)
    chaos.prepare()
    while (left := arguments.kills - chaos.kills.total()) > 0:
        chaos.kill_a_run(STAGES[chaos.finished_runs % len(STAGES)], min(left, -(-arguments.kills // len(STAGES))))
        arguments.table.parent.mkdir(parents=True, exist_ok=True)
        arguments.table.write_text(chaos.table() + "\n", encoding="utf-8")
    print(chaos.table())


if __name__ == "__main__":
    main()
