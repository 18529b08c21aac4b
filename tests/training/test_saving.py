"""One rank's saves, on a thread and not, refused by the system and killed; two ranks are in tests/integration."""

import errno
import itertools
import os
import shutil
import sys
import tempfile
from pathlib import Path
from threading import Event, Timer

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_up_saves import ONE, STATE, OneRankEngine, damage, description_at, save, without_deepspeed
from safetensors import SafetensorError

import xlm.training.checkpoint_part as checkpoint_part
import xlm.training.saving as saving
import xlm.training.visibility as visibility
from xlm.config.training import CheckpointSection
from xlm.errors import UserError
from xlm.training.checkpoint import checkpoint_step, complete_checkpoints, latest_checkpoint, verify_checkpoint
from xlm.training.saving import IDLE, WRITING, WRITTEN, Saver, as_sentence
from xlm.training.visibility import make_visible


@pytest.fixture(autouse=True)
def _without_deepspeed(monkeypatch):
    without_deepspeed(monkeypatch)


def steps_in(train):
    return [checkpoint_step(path) for path in complete_checkpoints(train)]


def partials_in(train):
    return list((train / "checkpoints").glob("*.partial"))


@pytest.fixture
def slow_disk(monkeypatch):
    """Writing waits until it is told to go on."""
    go_on = Event()
    plain = checkpoint_part.write_rank_state
    monkeypatch.setattr(checkpoint_part, "write_rank_state", lambda *arguments: go_on.wait(30) and plain(*arguments))
    return go_on


def written(saver):
    """Wait until this rank has written what it is writing."""
    saver._flight.wait(30)
    return saver.status


def test_training_goes_on_while_a_thread_writes_what_there_was(tmp_path, slow_disk):
    engine = OneRankEngine()
    saver = Saver(engine, tmp_path, ONE, CheckpointSection(asynchronous=True))
    assert saver.status == IDLE
    saver.save(description_at(1), {"step": 1})
    assert saver.status == WRITING
    engine.moments = b"a step later"
    saver.advance([WRITING])
    assert steps_in(tmp_path) == []
    slow_disk.set()
    assert written(saver) == WRITTEN
    saver.advance([WRITTEN])  # all have written: rank 0 makes it visible
    assert written(saver) == WRITTEN
    saver.advance([WRITTEN])
    assert saver.status == IDLE
    (path,) = complete_checkpoints(tmp_path)
    verify_checkpoint(path)
    assert (path / STATE).read_bytes() == b"moments"


def test_it_becomes_visible_only_when_every_rank_has_written(tmp_path):
    saver = Saver(OneRankEngine(), tmp_path, ONE, CheckpointSection(asynchronous=True))
    saver.save(description_at(1), {"step": 1})
    assert written(saver) == WRITTEN
    saver.advance([WRITTEN, WRITING])
    assert steps_in(tmp_path) == []
    assert saver.status == WRITTEN
    saver.wait()
    assert steps_in(tmp_path) == [1]


def test_the_next_save_waits_for_the_one_under_way(tmp_path, slow_disk, monkeypatch):
    monkeypatch.setattr(saving, "PATIENCE_S", 0.01)
    saver = Saver(OneRankEngine(), tmp_path, ONE, CheckpointSection(asynchronous=True))
    saver.save(description_at(1), {"step": 1})
    Timer(0.2, slow_disk.set).start()
    saver.save(description_at(2), {"step": 2})
    assert steps_in(tmp_path) == [1]
    saver.wait()
    assert steps_in(tmp_path) == [1, 2]


REFUSALS = {
    "full": (OSError(errno.ENOSPC, "No space left on device", "f"), "f: no space left on device; free some space"),
    "quota": (OSError(errno.EDQUOT, "Disk quota exceeded", "f"), "f: disk quota exceeded; free some of your quota"),
    "read only": (OSError(errno.EROFS, "Read-only file system", "f"), "f: read-only file system; use a folder that can be written"),
    "safetensors": (SafetensorError("I/O error: No space left on device (os error 28)"), "no space left on device; free some space"),
}
POINTS = {"folder": (Path, "mkdir"), "state": (checkpoint_part, "write_rank_state"), "weights": (checkpoint_part, "write_model_weights")}
POINTS |= {"list": (visibility, "write_json"), "rename": (Path, "rename"), "flush": (checkpoint_part, "flush_to_disk")}


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_the_system_refuses_is_one_sentence_and_leaves_the_checkpoint_before(tmp_path, monkeypatch, refusal, asynchronous):
    problem, sentence = REFUSALS[refusal]
    saver = Saver(OneRankEngine(), tmp_path, ONE, CheckpointSection(asynchronous=asynchronous))
    saver.save(description_at(1), {"step": 1})
    saver.wait()
    for owner, name in POINTS.values():
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, refusing(problem))
            with pytest.raises(UserError) as caught:
                save_and_wait(saver, 2)
        assert sentence in str(caught.value)
        assert str(caught.value).startswith("the checkpoint of step 2 could not be written: ")
        assert str(caught.value).endswith(" Training ends; the one of step 1 is left, and the same command goes on from it.")
        assert steps_in(tmp_path) == [1]
        assert not partials_in(tmp_path)
        assert saver.status == IDLE
    saver.save(description_at(2), {"step": 2})
    saver.wait()
    assert steps_in(tmp_path) == [1, 2]


def save_and_wait(saver, step):
    saver.save(description_at(step), {"step": step})
    saver.wait()


def refusing(problem):
    def refuse(*_, **__):
        raise problem

    return refuse


def test_a_bug_is_no_sentence_and_the_first_checkpoint_says_that_there_is_none_before(tmp_path):
    bug = ZeroDivisionError("a bug")
    assert as_sentence(bug, 1, tmp_path) is bug
    strange = OSError(errno.ENXIO, "No such device")
    assert as_sentence(strange, 1, tmp_path) is strange
    refused = as_sentence(OSError(errno.ENOSPC, "", "f"), 1, tmp_path)
    assert str(refused).endswith("there is none before it, and the same command starts anew.")


def test_files_that_rank_0_does_not_see_are_another_hosts(tmp_path):
    final = tmp_path / "checkpoints" / "step-00000001"
    final.with_name(final.name + ".partial").mkdir(parents=True)
    with pytest.raises(UserError, match="a rank wrote 9 bytes of this file, rank 0 finds none; the run folder has to be one that all"):
        make_visible(final, {"optimizer-rank-00001-of-00002.safetensors": {"size_bytes": 9, "sha256": "-"}})


def test_one_that_cannot_be_removed_is_a_warning(tmp_path, monkeypatch, capsys):
    engine = OneRankEngine()
    save(engine, tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refusing(OSError(errno.EACCES, "Permission denied")))
        save(engine, tmp_path, 2, keep_last=1)
    assert "step-00000001: this checkpoint could not be removed (Permission denied)." in capsys.readouterr().err
    save(engine, tmp_path, 3, keep_last=1)
    assert steps_in(tmp_path) == [3]
    assert not partials_in(tmp_path)


def test_a_damaged_one_is_replaced_and_later_ones_go(tmp_path):
    engine = OneRankEngine()
    for step in (1, 2, 3, 4):
        save(engine, tmp_path, step)
    for step in (3, 4):
        damage(tmp_path / "checkpoints" / f"step-0000000{step}" / "model.safetensors")
    assert checkpoint_step(latest_checkpoint(tmp_path)) == 2
    save(engine, tmp_path, 3, keep_last=2)
    assert steps_in(tmp_path) == [2, 3]
    verify_checkpoint(latest_checkpoint(tmp_path))


class Run:
    """A run of saves every step and what it must have kept, by an account of its own: step -> loss of those that stand."""

    def __init__(self, train, section):
        self.train, self.section = train, section
        self.engine = OneRankEngine({"weight": torch.arange(3.0)})
        self.saver = Saver(self.engine, train, ONE, section)
        self.standing, self.damaged, self.losses = {}, set(), {}

    @property
    def good(self):
        return max(set(self.standing) - self.damaged, default=0)

    def save(self, loss):
        step = self.step + 1
        self.saver.save(description_at(step), {"step": step, "validation_loss": loss})
        self.saver.wait()

    def saved(self, loss):
        self.step += 1
        self.damaged = {step for step in self.damaged if step < self.step}
        self.losses[self.step] = loss
        self.standing = {step: loss for step, loss in self.standing.items() if step < self.step} | {self.step: loss}
        kept = set(sorted(self.standing)[-self.section.keep_last :])
        if self.section.keep_every_steps:
            kept |= {step for step in self.standing if step % self.section.keep_every_steps == 0}
        if self.section.keep_best and (measured := {step: of for step, of in self.standing.items() if of is not None}):
            kept.add(min(step for step, of in measured.items() if of == min(measured.values())))
        self.standing = {step: of for step, of in self.standing.items() if step in kept}
        self.damaged &= kept

    def restart(self):
        self.saver = Saver(self.engine, self.train, ONE, self.section)
        latest = latest_checkpoint(self.train)
        self.step = 0 if latest is None else checkpoint_step(latest)
        return self.step

    def damage_newest(self):
        if len(self.standing) - len(self.damaged) > 1:  # no rule helps where all are damaged
            damage(self.train / "checkpoints" / f"step-{self.good:08d}" / STATE)
            self.damaged.add(self.good)

    def find_more_than_kept(self):
        """A kill while old ones were being removed leaves some of them, whole."""
        assert set(self.standing) <= set(steps_in(self.train))
        self.standing = {step: self.losses[step] for step in steps_in(self.train)}

    def check_whole(self):
        for path in complete_checkpoints(self.train):
            if checkpoint_step(path) not in self.damaged:
                verify_checkpoint(path)

    def check(self):
        assert set(steps_in(self.train)) == set(self.standing)
        assert not partials_in(self.train)


def killed_at(run, loss, count):
    """Save in a process that ends without a word at the ``count``-th change of the folder; return whether it did."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    numbers = itertools.count(1)
    changes = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod"}

    def watch(event, arguments):
        if event in changes and "checkpoints" in str(arguments[0]) and next(numbers) == count:
            os._exit(9)

    sys.addaudithook(watch)
    try:
        run.save(loss)
    finally:
        os._exit(0)


measured = st.none() | st.sampled_from([1.0, 2.0, 3.0])
action = st.one_of(
    st.tuples(st.just("save"), measured),
    st.tuples(st.just("fail"), st.sampled_from(sorted(POINTS))),
    st.tuples(st.just("kill"), measured, st.integers(1, 45)),
    st.just(("damage",)),
    st.just(("restart",)),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.builds(
        CheckpointSection,
        every_steps=st.just(1),
        keep_last=st.integers(1, 3),
        keep_every_steps=st.none() | st.just(3),
        keep_best=st.booleans(),
        asynchronous=st.booleans(),
    ),
    st.lists(action, max_size=12),
)
def test_whatever_happens_the_last_good_one_stays_and_the_rule_is_kept(monkeypatch, section, actions):
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), section)
        run.restart()
        for kind, *about in actions:
            before = run.good
            if kind == "save":
                run.save(about[0])
                run.saved(about[0])
                run.check()
            elif kind == "fail":
                with monkeypatch.context() as patch:
                    patch.setattr(*POINTS[about[0]], refusing(OSError(errno.ENOSPC, "")))
                    with pytest.raises(UserError):
                        run.save(None)
                if POINTS[about[0]][0] is not Path:
                    run.check()
            elif kind == "kill":
                killed = killed_at(run, *about[:1], about[1])
                step = run.step + 1
                # Before the rename there is the one before, from it on the new one.
                assert run.restart() in ({before, step} if killed else {step}), (before, step)
                if run.step == step:
                    run.step -= 1
                    run.saved(about[0])
                run.find_more_than_kept()
            elif kind == "damage":
                run.damage_newest()
                before = run.good
            else:
                assert run.restart() == before
            assert run.good >= before
            run.check_whole()
