"""The loop's bookkeeping with an engine that only counts; real ranks are in tests/integration."""

import errno
import itertools
import json
import math
import re
import signal
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from made_up_steps import LANGUAGES, deal, make_rows, pack
from ranks import run_ranks

import xlm.training.loop as loop_module
from xlm.config.recipe import Recipe
from xlm.config.training import ValidationSection
from xlm.errors import UserError
from xlm.tracking.json_lines import JsonLines
from xlm.training.distributed import Process
from xlm.training.engine import StepResult
from xlm.training.loop import TrainingLoop
from xlm.training.statistics import LossStatistics
from xlm.training.training_log import OF_THE_MACHINE, TrainingLog
from xlm.training.weights import ModelDescription

PHASE = {"sequence_length": 8, "sampling": {"kind": "temperature", "alpha": 1}}
RECIPE = Recipe.model_validate(
    {
        "name": "r",
        "seed": 1,
        "corpora": {"manifest": "m.yaml"},
        "vocabulary": "v.yaml",
        "embeddings": {"kind": "random"},
        "model": {"width": 8, "layers": 1, "heads": 1, "feed_forward": 8, "max_positions": 8},
        "phases": [
            {**PHASE, "name": "first", "steps": 4, "objectives": {"mlm": {"share": 1}}},
            {**PHASE, "name": "second", "steps": 5, "objectives": {"tlm": {"share": 1, "loss_weight": 0.25}}},
        ],
        "training": {
            "tokens_per_step": 64,
            "micro_batch_tokens": 64,
            "optimizer": {"learning_rate": 0.1},
            "checkpoint": {"every_steps": 3},
            "log_every_steps": 2,
        },
    }
)


class CountingEngine:
    def __init__(self, poison=()):
        self.objective = SimpleNamespace(statistics=LossStatistics(("first", "second"), LANGUAGES, torch.device("cpu")))
        self.device, self.poison = torch.device("cpu"), poison
        self.calls, self.rates, self.keys, self.contexts = [], [], [], []

    def set_dropout_key(self, *parts):
        self.keys.append(parts)

    def accumulate(self, batch, context, *, with_pairs, last):
        self.calls.append((with_pairs, last))
        self.contexts.append(context)
        self.objective.statistics.add_batch(context.phase, batch)
        loss = torch.tensor(self.keys[-1][1] + 0.5)
        self.objective.statistics.add_step_loss(loss)
        return loss

    def step(self, rate):
        self.rates.append(rate)
        applied = len(self.rates) - 1 not in self.poison
        return StepResult(applied, 1.0 if applied else math.inf)


class Batches:
    def __init__(self, at=None, micro_steps=2, rank=0, world_size=1):
        self.at, self.micro_steps, self.rank, self.world_size = at or {}, micro_steps, rank, world_size

    def iterate(self, start, stop):
        for step in range(start, stop):
            if step in self.at:
                self.at[step]()
            yield step, deal(self.rows(step), self.world_size, self.micro_steps, self.rank)

    def rows(self, step):
        return make_rows(step)


class DroppingBatches(Batches):
    """Loses a row of TLM at step 4."""

    def rows(self, step):
        return make_rows(step)[1:] if step == 4 else make_rows(step)


def unlike(step, seen):
    """What a plan of three rows of TLM a step says to rows seen."""
    planned, found = 3 * step, seen.rows_by_objective()["tlm"]
    return None if found == planned else f"{found} rows of tlm, but the plan has {planned}"


class KeptStates:
    """A `Saver` that keeps loop states, and nothing is ever under way."""

    status = 0

    def __init__(self, states, engine, folder, process, section):
        self.states = states

    def save(self, about, state):
        self.states[about.step] = dict(state)

    def advance(self, statuses):
        assert set(statuses) == {0}

    def wait(self):
        """Nothing to wait for."""


@pytest.fixture
def saved(monkeypatch):
    """Where checkpoints would go: step -> loop state."""
    states = {}
    monkeypatch.setattr(loop_module, "Saver", partial(KeptStates, states))
    monkeypatch.setattr(loop_module, "load_checkpoint", lambda engine, checkpoint: states[checkpoint])
    return states


def make_loop(tmp_path, engine, batches=None, tracker=None, process=None, drawn=None, unlike_plan=None, stop_asked=None, validation=None):
    about = ModelDescription({}, 50, "voc", LANGUAGES, 0, "fp32", "recipe")
    recipe = RECIPE
    if validation is not None:
        section = RECIPE.training.model_copy(update={"validation": ValidationSection(every_steps=5)})
        recipe = RECIPE.model_copy(update={"training": section})
    return TrainingLoop(
        engine,
        batches or Batches(),
        recipe,
        lambda step: 0 if step < 4 else 1,
        process=process or Process(0, 1, 0, 1),
        folder=tmp_path,
        description=about,
        log=TrainingLog(tmp_path, ("first", "second"), 9, tracker=tracker, drawn=drawn) if process is None or process.is_main else None,
        unlike_plan=unlike_plan,
        stop_asked=stop_asked,
        validation=validation,
    )


def lines(tmp_path):
    return [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]


def curve(tmp_path):
    return [{name: value for name, value in line.items() if name not in OF_THE_MACHINE} for line in lines(tmp_path)]


def test_logs_and_saves_at_their_steps_and_at_the_end(tmp_path, saved):
    result = make_loop(tmp_path, CountingEngine()).run(None)
    assert result.finished
    assert result.steps == 9
    assert sorted(saved) == [3, 6, 9]
    assert [line["step"] for line in lines(tmp_path)] == [2, 4, 6, 8, 9]
    assert [line["phase"] for line in lines(tmp_path)] == ["first", "first", "second", "second", "second"]
    # Two micro-batches of step + 0.5 each; a line is the mean since the last one.
    assert [line["loss"] for line in lines(tmp_path)] == [2.0, 6.0, 10.0, 14.0, 17.0]
    assert lines(tmp_path)[-1]["tokens"] == sum(len(one["ids"]) for step in range(9) for row in make_rows(step) for one in row)
    assert result.seen.all_tokens == lines(tmp_path)[-1]["tokens"]
    assert result.seen.rows == {
        (phase, objective): steps * rows
        for phase, steps in (("first", 4), ("second", 5))
        for objective, rows in (("tlm", 3), ("mlm", 2), ("contrastive", 3))
    }


def test_a_line_says_what_was_drawn(tmp_path, saved):
    def drawn(step, seen):
        return {"steps": float(step), "rows/mlm": float(seen.rows_by_objective()["mlm"]), "tokens/all": float(seen.all_tokens)}

    make_loop(tmp_path, CountingEngine(), drawn=drawn).run(None)
    assert [line["rows/mlm"] for line in lines(tmp_path)] == [4.0, 8.0, 12.0, 16.0, 18.0]
    assert all(line["rows/mlm"] == 2 * line["steps"] for line in lines(tmp_path))
    assert all(line["tokens/all"] == line["tokens"] for line in lines(tmp_path))


def test_validation_has_its_steps_its_names_and_its_place_in_the_checkpoint(tmp_path, saved, capsys):
    class Counted:
        calls = 0

        def measure(self):
            self.calls += 1
            return {"validation/loss": 1.0 / self.calls, "validation/mlm": 0.5, "validation/accuracy/mlm": 0.25}

    validation = Counted()
    make_loop(tmp_path, CountingEngine(), validation=validation).run(None)
    assert validation.calls == 2
    assert {line["step"]: line["validation/loss"] for line in lines(tmp_path) if "validation/loss" in line} == {5: 1.0, 9: 0.5}
    assert [line["step"] for line in lines(tmp_path)] == [2, 4, 5, 6, 8, 9]
    assert [saved[step].get("validation_loss") for step in (3, 6, 9)] == [None, None, 0.5]
    said = capsys.readouterr().err
    assert "validation after step 5: loss 1.0000; mlm 0.500 (25.0% right)" in said
    assert len(re.findall(r"^step +\d/9  loss", said, re.MULTILINE)) == 6


def test_a_validation_that_is_not_finite_is_written_as_nothing(tmp_path, saved):
    nan = SimpleNamespace(measure=lambda: {"validation/loss": math.nan})
    make_loop(tmp_path, CountingEngine(), validation=nan).run(None)
    assert lines(tmp_path)[-1]["validation/loss"] is None
    assert "validation_loss" not in saved[9]


def test_micro_batches_know_the_whole_batch_and_their_phase(tmp_path, saved):
    engine = CountingEngine()
    make_loop(tmp_path, engine).run(None)
    assert engine.calls[:4] == [(True, False), (False, True)] * 2
    rows = make_rows(0)
    assert engine.contexts[0].predictions == sum(len(one["labels"]) for row in rows for one in row)
    assert engine.contexts[0].pairs_by_rank == (sum(len(row) // 2 for row in rows if row[0]["key"] >= 0),)
    told = [{name: context.loss_weight(name) for name in ("mlm", "tlm")} for context in engine.contexts[::2]]
    assert told == [{"mlm": 1.0, "tlm": 0.0}] * 4 + [{"mlm": 0.0, "tlm": 0.25}] * 5
    assert len(set(engine.keys)) == 18


def test_steps_that_were_not_applied_are_counted_and_left_out_of_the_losses(tmp_path, saved):
    result = make_loop(tmp_path, CountingEngine(poison={1, 8})).run(None)
    assert result.skipped_steps == 2
    assert [json.loads(line)["step"] for line in (tmp_path / "skipped.jsonl").read_text().splitlines()] == [1, 8]
    assert [line["skipped_steps"] for line in lines(tmp_path)] == [1, 1, 1, 1, 2]
    assert [line["loss"] for line in lines(tmp_path)] == [1.0, 6.0, 10.0, 14.0, None]
    assert lines(tmp_path)[0]["gradient_norm"] is None


def test_going_on_gives_the_curve_of_a_run_that_never_stopped(tmp_path, saved):
    (tmp_path / "whole").mkdir()
    whole = make_loop(tmp_path / "whole", CountingEngine(poison={1})).run(None)
    wanted = curve(tmp_path / "whole")

    class Killed(BaseException):
        pass

    def kill():
        raise Killed

    (tmp_path / "killed").mkdir()
    with pytest.raises(Killed):
        make_loop(tmp_path / "killed", CountingEngine(poison={1}), Batches({5: kill})).run(None)
    assert [line["step"] for line in lines(tmp_path / "killed")] == [2, 4]
    wall_s = lines(tmp_path / "killed")[-1]["wall_s"]
    result = make_loop(tmp_path / "killed", CountingEngine()).run(3)
    assert result.finished
    assert curve(tmp_path / "killed") == wanted
    assert result.seen == whole.seen
    # The lost step was paid for as well.
    assert lines(tmp_path / "killed")[1]["wall_s"] >= wall_s


def test_a_curve_that_was_lost_is_said_and_one_that_had_not_begun_is_not(tmp_path, saved, capsys):
    make_loop(tmp_path, CountingEngine()).run(None)
    (tmp_path / "metrics.jsonl").unlink()
    saved[1] = {**saved[3], "step": 1}  # before the first line, which is after two steps
    for step, warned in ((3, True), (1, False)):
        (tmp_path / "metrics.jsonl").unlink(missing_ok=True)
        capsys.readouterr()
        make_loop(tmp_path, CountingEngine()).run(step)
        assert ("metrics.jsonl has nothing of the 3 steps so far" in capsys.readouterr().err) is warned


def asked_at(step):
    """Batches during whose building of ``step`` SIGUSR1 arrives, and who hears of it."""
    asked = []
    return Batches({step: lambda: asked.append(int(signal.SIGUSR1))}), lambda: asked[-1] if asked else 0


def test_asked_to_stop_it_saves_at_the_next_step_boundary(tmp_path, saved):
    batches, stop_asked = asked_at(4)
    result = make_loop(tmp_path, CountingEngine(), batches, stop_asked=stop_asked).run(None)
    assert not result.finished
    assert result.steps == 4
    assert result.stopped_by == signal.SIGUSR1
    assert sorted(saved) == [3, 4]


def test_a_good_checkpoint_is_not_written_over_when_stopped_right_after_it(tmp_path, saved):
    batches, stop_asked = asked_at(3)
    result = make_loop(tmp_path, CountingEngine(), batches, stop_asked=stop_asked).run(None)
    assert result.steps == 3
    assert list(saved) == [3]


def test_pairs_outside_the_first_micro_batch_are_a_bug(tmp_path, saved):
    class Wrong(Batches):
        def iterate(self, start, stop):
            yield 0, [pack([]), pack(make_rows(0))]

    with pytest.raises(RuntimeError, match="outside the first micro-batch"):
        make_loop(tmp_path, CountingEngine(), Wrong()).run(None)


@pytest.mark.parametrize("problem", [UserError("the shard is gone."), OSError("the disk is gone")])
def test_what_the_loader_raises_is_raised_as_it_was_by_a_single_process(tmp_path, saved, problem):
    def fail():
        raise problem

    with pytest.raises(type(problem)) as caught:
        make_loop(tmp_path, CountingEngine(), Batches({5: fail})).run(None)
    assert caught.value is problem


def test_a_loader_that_is_out_of_step_is_a_bug(tmp_path, saved):
    class Skipping(Batches):
        def iterate(self, start, stop):
            return super().iterate(start + 1, stop)

    with pytest.raises(RuntimeError, match="the loader gave step 1 for step 0"):
        make_loop(tmp_path, CountingEngine(), Skipping()).run(None)


@pytest.mark.parametrize("step", [2, 9])  # in the middle; after the last one
def test_a_full_disk_under_the_records_is_a_sentence_and_nothing_is_saved_after_it(tmp_path, saved, monkeypatch, step):
    loop = make_loop(tmp_path, CountingEngine())
    append = JsonLines.append

    def full(lines, record):
        if record["step"] == step:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(lines, record)

    monkeypatch.setattr(JsonLines, "append", full)
    with pytest.raises(UserError, match=rf"^{tmp_path}: no space left on device; free some space"):
        loop.run(None)
    assert [saved_step for saved_step in saved if saved_step >= step] == []


def test_the_loader_is_closed_however_the_run_ends(tmp_path, saved):
    class Noted(Batches):
        closed = 0

        def iterate(self, start, stop):
            try:
                yield from super().iterate(start, stop)
            finally:
                Noted.closed += 1

    make_loop(tmp_path, CountingEngine(), Noted()).run(None)
    assert Noted.closed == 1
    make_loop(tmp_path, CountingEngine(), Noted(), stop_asked=lambda: signal.SIGTERM).run(None)
    assert Noted.closed == 2


def test_rows_that_are_not_the_plans_end_the_run_before_they_are_saved(tmp_path, saved):
    result = make_loop(tmp_path, CountingEngine(poison={4}), unlike_plan=unlike).run(None)  # a step that is skipped was seen
    assert result.finished
    saved.clear()
    with pytest.raises(RuntimeError, match=r"^17 rows of tlm, but the plan has 18$"):
        make_loop(tmp_path, CountingEngine(), DroppingBatches(), unlike_plan=unlike).run(None)
    assert list(saved) == [3]


def test_two_ranks_count_together_what_one_counts(tmp_path, saved):
    alone = make_loop(tmp_path, CountingEngine()).run(None).seen
    first, second = run_ranks("loop_rank.py", ["whole"], 2)
    assert first.splitlines()[-1] == repr((sorted(alone.tokens.items()), sorted(alone.rows.items())))
    assert second.splitlines()[-1] == repr(([], []))
    # What diverged on one rank is known on the other, which writes it down.
    skipped = json.loads(first.splitlines()[-2])
    assert (skipped["step"], skipped["loss"], skipped["where"]) == (4, "nan", [{"rank": 1, "micro_batch": 1}])
    assert "step 4 skipped: its loss is not finite (rank 1, micro-batch 1)" in first


def test_rows_lost_on_one_rank_end_all_with_the_same_sentence():
    for printed in run_ranks("loop_rank.py", ["dropped"], 2):
        assert printed.splitlines()[-1] == "RuntimeError 17 rows of tlm, but the plan has 18 | NoneType"


@pytest.mark.parametrize(
    ("what", "sentence", "cause"),
    [
        ("user error", "UserError rank 1: de.arrow: the shard is gone.", "UserError"),
        ("bug", "RuntimeError rank 1: ZeroDivisionError: a bug", "ZeroDivisionError"),
        ("empty", "RuntimeError rank 1: RuntimeError: the loader gave step None for step 2", "RuntimeError"),
    ],
)
def test_what_goes_wrong_on_one_rank_is_raised_on_all(what, sentence, cause):
    first, second = run_ranks("loop_rank.py", [what], 2)
    assert first.splitlines()[-1] == f"{sentence} | NoneType"
    assert second.splitlines()[-1] == f"{sentence} | {cause}"


def test_the_tracker_gets_what_the_lines_say_and_what_it_missed(tmp_path, saved):
    class Listener:
        def __init__(self):
            self.told = []

        def log_line(self, record):
            self.told.append((record["step"], record["loss"]))

        def resume(self):
            self.told.append("what the lines have")

    first = Listener()
    make_loop(tmp_path, CountingEngine(), tracker=first).run(None)
    assert first.told == [(line["step"], line["loss"]) for line in lines(tmp_path)]
    second = Listener()
    make_loop(tmp_path, CountingEngine(), tracker=second).run(6)
    assert second.told == ["what the lines have", *first.told[3:]]
    assert all(earlier["time"] <= later["time"] for earlier, later in itertools.pairwise(lines(tmp_path)))
