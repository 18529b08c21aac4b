"""The ways to start training on several hosts: each gives the run that ranks started by hand give."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from training import PATH, ROOT, by_hand, by_pdsh, by_torchrun, curve, start, without_ssh

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def run(made, tmp_path_factory):
    root = tmp_path_factory.mktemp("launched")
    shutil.copytree(made, root, dirs_exist_ok=True)
    return root / "run"


@pytest.fixture(scope="module")
def by_hand_curve(rack, run):
    ranks = by_hand([rack[0], rack[1]], run.parent / "recipe.yaml", run)
    assert [rank.wait() for rank in ranks] == [0, 0], ranks[0].printed
    trained = curve(run)
    shutil.rmtree(run / "train")
    return trained


@pytest.fixture(autouse=True)
def _trained_anew(run, by_hand_curve):
    yield
    shutil.rmtree(run / "train", ignore_errors=True)


def test_the_launcher_logs_in_to_every_host(rack, run, by_hand_curve):
    launched = by_pdsh(rack, run.parent / "recipe.yaml", run)
    assert launched.wait() == 0, launched.printed
    assert "alder: pretraining: 2 ranks on alder (rank 0) and birch (rank 1)" in launched.printed
    assert curve(run) == by_hand_curve


def test_a_launcher_on_each_host(rack, run, by_hand_curve):
    launched = without_ssh(rack, run.parent / "recipe.yaml", run)
    assert [one.wait() for one in launched] == [0, 0], launched[0].printed + launched[1].printed
    assert curve(run) == by_hand_curve


def test_torchrun_on_each_host(rack, run, by_hand_curve):
    launched = by_torchrun(rack, run.parent / "recipe.yaml", run)
    assert [one.wait() for one in launched] == [0, 0], launched[0].printed + launched[1].printed
    assert curve(run) == by_hand_curve


def test_the_slurm_script_starts_a_rank_a_task_and_asks_to_be_queued_again_when_training_can_go_on(rack, run, by_hand_curve):
    slurm = {
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NODELIST": "alder,birch",
        "SLURM_NTASKS_PER_NODE": "1",
        "RECIPE": str(run.parent / "recipe.yaml"),
        "PYTHON": sys.executable,
        "PATH": os.pathsep.join([str(HERE / "slurm"), PATH]),
    }
    batch = ["bash", str(ROOT / "docs" / "examples" / "slurm.sh"), "--run-dir", str(run)]
    job = start(rack[0], batch, ROOT, slurm)
    # As --signal=USR1@180 does, to a rank.
    job.wait_for(lambda: (run / "train" / "metrics.jsonl").exists() and len(curve(run)) >= 2)
    rack[1].ranks()[0].send_signal(signal.SIGUSR1)
    assert job.wait() == 75, job.printed
    assert "requeued 4711" in job.printed
    # A rank that is killed, for memory perhaps.
    job = start(rack[0], batch, ROOT, slurm)
    seen = len(curve(run))
    job.wait_for(lambda: len(curve(run)) > seen)
    rack[1].ranks()[0].kill()
    assert job.wait() in (75, 137), job.printed  # srun kills the others, or they end by themselves
    assert "requeued 4711" in job.printed
    job = start(rack[0], batch, ROOT, slurm | {"SLURM_RESTART_COUNT": "1"})
    assert job.wait() == 0, job.printed
    assert "requeued" not in job.printed
    assert curve(run) == by_hand_curve
