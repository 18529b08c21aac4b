"""Hosts that die, networks that are cut or slow: one sentence with the host and the reason, and the next start goes on.

The tests trouble one run after each other, and the last one compares it with a run that had none.
"""

import re
import shutil
import signal
import time

import pytest
from training import by_hand, curve, started_together, without_ssh

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]
LOST = 75
TIMEOUT_S = 30
# Beyond the timeout, on a busy machine: signs of life that are waited for, and ending. Idle it is about ten seconds.
A_LITTLE_S = 60


@pytest.fixture(scope="module")
def run(made, tmp_path_factory):
    root = tmp_path_factory.mktemp("trouble")
    shutil.copytree(made, root, dirs_exist_ok=True)
    return root / "run"


def start(rack, run):
    return by_hand([rack[0], rack[1]], run.parent / "recipe.yaml", run, "--set", f"training.process_group_timeout_s={TIMEOUT_S}")


def wait_for_steps(ranks, more):
    """Wait until training, which may have gone on from a checkpoint, shows ``more`` lines of its console."""
    shown = ranks[0].printed.count("\nstep ")
    ranks[0].wait_for(lambda: ranks[0].printed.count("\nstep ") >= shown + more)


def test_a_host_whose_processes_are_killed(rack, run):
    ranks = start(rack, run)
    wait_for_steps(ranks, 3)
    rack[1].kill()
    killed = time.monotonic()
    assert ranks[0].wait() == LOST, ranks[0].printed
    assert time.monotonic() - killed < A_LITTLE_S
    ranks[1].wait()
    assert re.search(r"^error: birch \(rank 1\) ended without a word: killed .* Start the same command again", started_together(ranks))


def test_a_link_that_is_cut(rack, run):
    ranks = start(rack, run)
    wait_for_steps(ranks, 2)
    rack[1].unplug()
    cut = time.monotonic()
    codes = [rank.wait() for rank in ranks]
    took_s = time.monotonic() - cut
    rack[1].plug_in_again()
    assert took_s < TIMEOUT_S + A_LITTLE_S
    assert codes == [LOST, LOST], ranks[0].printed
    # The cut host cannot hear that rank 0 has spoken, and has a terminal of its own.
    assert re.search(r"^error: birch \(rank 1\): no sign of rank 0 on alder for \d+ s", started_together(ranks[1:]))
    assert re.search(r"^error: no sign of birch \(rank 1\) for (more than )?\d+ s.*: .* network to it is cut", started_together(ranks[:1]))


def test_the_host_of_rank_0_is_killed(rack, run):
    ranks = start(rack, run)
    wait_for_steps(ranks, 2)
    rack[0].kill()
    assert ranks[1].wait() == LOST, ranks[1].printed
    assert re.search(r"^error: birch \(rank 1\): no sign of rank 0 on alder", started_together(ranks[1:]))


def test_a_host_that_stands_still(rack, run):
    ranks = start(rack, run)
    wait_for_steps(ranks, 2)
    (stopped,) = rack[1].ranks()
    stopped.suspend()
    code = ranks[0].wait()
    stopped.kill()
    ranks[1].process.send_signal(signal.SIGCONT)  # nsenter stands still with its child
    ranks[1].wait()
    assert code == LOST, ranks[0].printed
    assert ranks[0].wall_s < 10 * TIMEOUT_S
    assert re.search(r"^error: no sign of birch \(rank 1\) for .*(the host is down or stopped|more than \d+ s)", started_together(ranks))


def test_a_folder_that_one_host_cannot_write(rack, run):
    ranks = start(rack, run)
    wait_for_steps(ranks, 2)
    checkpoints = run / "train" / "checkpoints"
    rack[1].bind(checkpoints, checkpoints)
    rack[1].configure(f"mount -o remount,bind,ro {checkpoints}")
    codes = [rank.wait() for rank in ranks]
    rack[1].unbind(checkpoints)
    assert codes == [2, 2], ranks[0].printed
    sentence = r"^error: birch \(rank 1\): the checkpoint of step \d+ could not be written: \S+: read-only file system; .* Training ends"
    assert re.search(sentence, started_together(ranks))


def test_a_slow_link_and_one_that_comes_back_change_nothing(rack, run):
    ranks = start(rack, run)
    wait_for_steps(ranks, 1)
    with rack[1].slow(200):
        wait_for_steps(ranks, 1)
    rack[1].unplug()
    time.sleep(TIMEOUT_S / 6)
    rack[1].plug_in_again()
    assert [rank.wait() for rank in ranks] == [0, 0], ranks[0].printed
    assert "error: " not in ranks[0].printed + ranks[1].printed


def test_the_troubled_run_is_the_same_as_one_without(rack, run):
    troubled = curve(run)
    assert troubled[-1]["step"] == 40
    shutil.rmtree(run / "train")
    ranks = start(rack, run)
    assert [rank.wait() for rank in ranks] == [0, 0], ranks[0].printed
    assert curve(run) == troubled


def test_rank_0_killed_under_launchers_says_who_was_killed(rack, run):
    shutil.copytree(run, run.parent / "launched", ignore=shutil.ignore_patterns("train"))
    launched = without_ssh(
        rack, run.parent / "recipe.yaml", run, "--set", "seed=6", "--set", f"training.process_group_timeout_s={TIMEOUT_S}"
    )
    launched[0].wait_for(lambda: "\nstep " in launched[0].printed)
    rack[0].ranks()[0].kill()
    codes = [one.wait() for one in launched]
    assert codes[1] == LOST, launched[1].printed
    assert codes[0] not in (0, LOST)
    assert "exits with return code = -9" in launched[0].printed
    assert "error: birch (rank 1): no sign of rank 0 on alder" in launched[1].printed
