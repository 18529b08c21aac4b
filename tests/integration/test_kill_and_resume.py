"""Promise 2 with the real launcher and two ranks: killed anywhere, the same command gives the very same run."""

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from made_up_run import make_run, write_vocabulary
from warm_scripts import WarmScript

from xlm.runs.folder import RunFolder
from xlm.runs.lock import only_writer
from xlm.training.checkpoint import checkpoint_step, latest_checkpoint, load_model_weights
from xlm.training.training_log import OF_THE_MACHINE

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


def command_of(recipe, run, overrides=(), kill=None):
    script = HERE / "killed_pretrain.py" if kill else ROOT / "pipelines" / "pretrain.py"
    command = [str(script), "--recipe", str(recipe), "--run-dir", str(run)]
    command += ["--deepspeed_config", str(ROOT / "deepspeed_configs" / "zero2.json")]
    return [*command, *(part for override in overrides for part in ("--set", override))]


def environment_of(kill=None):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": str(ROOT)}
    environment.pop("MLFLOW_TRACKING_URI", None)
    return environment | ({"KILL": kill} if kill else {})


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def launch(recipe, run, *, kill=None, overrides=(), options=()):
    """Start pretraining as a user does; returns its exit code and all it printed."""
    launcher = [str(Path(sys.executable).with_name("deepspeed")), "--hostfile", os.devnull, "--num_accelerators", "2"]
    done = subprocess.run(
        [sys.executable, *launcher, "--master_port", str(free_port()), *command_of(recipe, run, overrides, kill), *options],
        env=environment_of(kill),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd=run.parent,
        start_new_session=True,
        # A notice goes to all processes of a job: a launcher has to ignore it, or it would die and lose the exit code.
        preexec_fn=lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
    )
    return done.returncode, done.stdout


def two_ranks(recipe, run, kill, overrides=()):
    """Start the two ranks without a launcher, with the libraries loaded: both take longer to load than these ranks train."""
    shared = environment_of(kill) | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "LOCAL_SIZE": "2"}
    command = command_of(recipe, run, overrides, kill=kill)
    return [
        WarmScript(command, env={**shared, "RANK": rank, "LOCAL_RANK": rank}, cwd=run.parent, output=run.parent / f"printed{rank}")
        for rank in ("0", "1")
    ]


def start_two_ranks(recipe, run, kill=None, overrides=(), *, all_end=False):
    """Run the two ranks until one ends, or until both do; returns their exit codes and all that they printed."""
    ranks = two_ranks(recipe, run, kill, overrides)
    try:
        while (any if all_end else all)(rank.poll() is None for rank in ranks):
            time.sleep(0.05)
    finally:
        for rank in ranks:
            rank.kill()
    codes = [rank.wait() for rank in ranks]
    return codes, [(run.parent / f"printed{number}").read_text(encoding="utf-8") for number in (0, 1)]


def say(recipe, run, overrides=()):
    """Start the two ranks for what rank 0 says before it trains; returns its exit code and that."""
    ranks = two_ranks(recipe, run, None, overrides)
    try:
        code = ranks[0].wait()
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return code, (run.parent / "printed0").read_text(encoding="utf-8")


def curve(run):
    lines = [json.loads(line) for line in (run / "train" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name not in OF_THE_MACHINE} for line in lines]


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory):
    root = tmp_path_factory.mktemp("unkilled")
    recipe = make_run(root)
    code, printed = launch(recipe, root / "run", options=("--profile", "steps=2:4"))
    assert code == 0, printed
    return recipe, root / "run", printed


def copy_without_training(unkilled, root):
    recipe, run, _ = unkilled
    shutil.copytree(run, root / "run", ignore=shutil.ignore_patterns("train"))
    shutil.copy(run.parent / "mlflow.db", root)  # making its tables takes as long as training
    return recipe, root / "run"


@pytest.mark.timeout(3000)
def test_killed_five_times_the_same_command_gives_the_same_run(unkilled, tmp_path):
    recipe, run = copy_without_training(unkilled, tmp_path)
    workers, asynchronous = "training.loader.workers=2", "training.checkpoint.asynchronous=true"

    def steps():
        latest = latest_checkpoint(run / "train")
        return None if latest is None else checkpoint_step(latest)

    codes, printed = start_two_ranks(recipe, run, "step:1:10")  # rank 1 in the middle of step 5
    assert codes[1] == -9, printed
    assert steps() == 3, printed
    # Rank 1 while it writes its part of step 6, with training going on.
    codes, printed = start_two_ranks(recipe, run, "save:1:1", [workers, asynchronous])
    assert codes[1] == -9, printed
    assert steps() == 3, printed
    # SIGTERM to rank 1 in step 5, twice: both finish it, save and leave.
    codes, printed = start_two_ranks(recipe, run, "terminate:1:3", [workers], all_end=True)
    assert codes == [143, 143], printed
    assert_stopped("SIGTERM", 5, printed)
    assert steps() == 5
    # Rank 0 between the last byte of the checkpoint of step 6 and its name; then when it stands, before the oldest goes.
    for kill, saved in (("rename:0:1", 5), ("retain:0:1", 6)):
        codes, printed = start_two_ranks(recipe, run, kill, [workers, asynchronous])
        assert codes[0] == -9, printed
        assert steps() == saved, printed
    code, printed = launch(recipe, run, kill="notice:0:3")  # to all processes of the job, in step 8
    assert code == 75, printed
    assert_stopped("SIGUSR1", 8, [printed])
    anywhere = f"step:{random.randrange(2)}:{random.randint(1, 10)}"  # one of the ten micro-batches that are left to a rank
    codes, printed = start_two_ranks(recipe, run, anywhere)
    assert -9 in codes, (anywhere, printed)
    codes, printed = start_two_ranks(recipe, run, overrides=[workers, asynchronous], all_end=True)
    assert codes == [0, 0], printed

    assert curve(run) == curve(unkilled[1])
    assert [line["step"] for line in curve(run)] == [2, 4, 6, 8, 10, 12, 13]
    found, wanted = (load_model_weights(latest_checkpoint(folder / "train")) for folder in (run, unkilled[1]))
    assert found.step == wanted.step == 13
    assert all(torch.equal(found.state_dict[name], wanted.state_dict[name]) for name in wanted.state_dict)
    seen = [json.loads((folder / "train" / "stage.json").read_text(encoding="utf-8"))["summary"]["seen"] for folder in (run, unkilled[1])]
    assert seen[0] == seen[1]
    assert not list((run / "train" / "checkpoints").glob("*.partial"))
    one_mlflow_run(run)


def test_a_run_has_its_trace_and_says_how_well_it_uses_the_machine(unkilled):
    train = unkilled[1] / "train"
    events = json.loads((train / "profile" / "steps-2-4.trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert any("mm" in str(event.get("name")) for event in events)
    lines = [json.loads(line) for line in (train / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert all(0 < line["mfu"] < 1.5 for line in lines)
    assert lines[0]["time_left_s"] > lines[-1]["time_left_s"] == 0
    assert "of 13" in unkilled[2] or "13 steps" in unkilled[2]


def assert_stopped(by, step, printed):
    """One line says it, and nothing of the ranks' leaving looks like an accident."""
    text = "\n".join(printed)
    assert text.count(f"pretraining: stopped by {by}, saved at step {step}; run the same command again to continue.") == 1, text
    assert "Traceback" not in text
    assert "error" not in text.lower().replace("[error] [launch.py", ""), text  # the launcher's own line on the exit code


@pytest.fixture
def small_disk(unkilled, tmp_path):
    """A run whose training has a file system of its own, of eight megabytes."""
    recipe, run = copy_without_training(unkilled, tmp_path)
    (run / "train").mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", run / "train"], check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"file systems cannot be mounted here ({mounted.stderr.strip()})")
    yield recipe, run
    for inner in ("checkpoints", "aside"):
        subprocess.run(["umount", run / "train" / inner], check=False, capture_output=True)
    subprocess.run(["umount", "--lazy", run / "train"], check=True)


def test_what_a_rank_cannot_write_ends_all_and_leaves_the_checkpoint_before(small_disk):
    recipe, run = small_disk
    for kill, asynchronous, refused in [
        ("full:1:2", "true", "no space left on device; free some space, or use another folder"),
        ("read_only:1:1", "false", "read-only file system; use a folder that can be written, --run-dir for a run"),
    ]:
        codes, printed = start_two_ranks(recipe, run, kill, [f"training.checkpoint.asynchronous={asynchronous}"], all_end=True)
        assert codes == [2, 2], printed
        said = "\n".join(printed)
        sentence = rf"error: rank \d: the checkpoint of step 6 could not be written: \S+: {refused}\. Training ends; the one of step 3 is"
        assert len(re.findall(sentence, said)) == 1, said
        assert "Traceback" not in said
        assert checkpoint_step(latest_checkpoint(run / "train")) == 3
        if kill.startswith("full"):
            (run / "train" / "ballast").unlink()
            assert not list((run / "train" / "checkpoints").glob("*.partial"))


@pytest.mark.parametrize(
    ("kill", "workers", "code", "sentence"),
    [
        ("worker:1:4", 2, 2, r"error: rank 1: loader worker \d was ended by SIGKILL before it gave step \d+; if the machine ran out"),
        ("disk:1:5", 0, 1, r"RuntimeError: rank 1: OSError: \[Errno 5\] Input/output error: 'de.arrow'"),
    ],
)
def test_what_one_rank_cannot_be_fed_ends_all_with_the_same_sentence(unkilled, tmp_path, kill, workers, code, sentence):
    recipe, run = copy_without_training(unkilled, tmp_path)
    ranks = two_ranks(recipe, run, kill, [f"training.loader.workers={workers}"])
    ended = {}
    try:
        while len(ended) < 2:
            for number, rank in enumerate(ranks):
                if number not in ended and rank.poll() is not None:
                    ended[number] = time.monotonic()
            time.sleep(0.05)
    finally:
        for rank in ranks:
            rank.kill()
    assert {rank.returncode for rank in ranks} == {code}
    assert abs(ended[0] - ended[1]) < 30
    # A mistake is said once, by rank 0; a bug's traceback is shown wherever it was met.
    printed = [(tmp_path / f"printed{number}").read_text(encoding="utf-8") for number in (0, 1)]
    assert [len(re.findall(f"^{sentence}", of_rank, re.MULTILINE)) for of_rank in printed] == [1, 0 if code == 2 else 1], printed
    assert latest_checkpoint(run / "train") is None or checkpoint_step(latest_checkpoint(run / "train")) < 13


def one_mlflow_run(run):
    from mlflow.tracking import MlflowClient

    from xlm.tracking.mlflow_run import TAG

    record = json.loads((run / "train" / "run.json").read_text(encoding="utf-8"))
    client = MlflowClient(tracking_uri=f"sqlite:///{run.parent / 'mlflow.db'}")
    of_key = f"tags.`{TAG}` = '{record['tracking_key']}'"
    (tracked,) = client.search_runs([client.get_experiment_by_name("xlm").experiment_id], filter_string=of_key)
    assert tracked.info.status == "FINISHED"
    assert tracked.info.run_id == record["mlflow_run_id"]
    assert tracked.data.params["seed"] == "5"
    history = [(metric.step, metric.value) for metric in client.get_metric_history(tracked.info.run_id, "loss")]
    assert sorted(history) == [(line["step"], line["loss"]) for line in curve(run)]


def test_a_finished_run_says_so_and_shows_its_summary(unkilled):
    recipe, run, printed = unkilled
    record = json.loads((run / "train" / "stage.json").read_text(encoding="utf-8"))
    about = record["summary"]
    assert about["steps"] == 13
    assert about["world_size"] == 2
    assert about["precision"] == "bf16"
    assert set(about["tokens_by_language"]) == {"en", "de"}
    assert sum(about["tokens_by_language"].values()) == about["tokens"] > 0
    counted = {(phase, name): of for phase, objectives in about["seen"].items() for name, of in objectives.items()}
    assert set(counted) == {(phase, name) for phase in ("short", "long") for name in ("contrastive", "mlm", "tlm")}
    assert all(of["rows"] == of["planned_rows"] > 0 for of in counted.values())
    assert sum(of["tokens"] for of in counted.values()) == about["tokens"]
    last = curve(run)[-1]
    for name in ("contrastive", "mlm", "tlm"):
        assert last[f"rows/{name}"] == counted["short", name]["rows"] + counted["long", name]["rows"]
    assert about["losses"]["loss"] > 0
    assert record["wall_s"] > 0
    assert record["peak_memory_bytes"] > 2**27
    assert "pretraining: 13 steps" in printed
    assert "Traceback" not in printed
    code, again = say(recipe, run)
    assert code == 0
    assert again.count("already done") == 1


def test_a_finished_run_without_its_last_checkpoint_trains_its_last_steps_again(unkilled, tmp_path):
    recipe, run = unkilled[0], tmp_path / "run"
    shutil.copytree(unkilled[1], run)
    shutil.rmtree(latest_checkpoint(run / "train"))
    before = checkpoint_step(latest_checkpoint(run / "train"))
    assert before < 13
    codes, (printed, _) = start_two_ranks(recipe, run, all_end=True)
    assert codes == [0, 0], printed
    assert printed.count("step-00000013: this checkpoint is missing") == 1
    assert "already done" not in printed
    assert checkpoint_step(latest_checkpoint(run / "train")) == 13
    assert curve(run) == curve(unkilled[1])
    starts = json.loads((run / "train" / "run.json").read_text(encoding="utf-8"))["starts"]
    assert len(starts) == 2
    assert json.loads((run / "train" / "stage.json").read_text(encoding="utf-8"))["summary"]["code_changed_on_resume"] is False


@pytest.fixture
def stopped(unkilled, tmp_path):
    """A run in the middle: trained, but not finished."""
    shutil.copytree(unkilled[1], tmp_path / "run")
    (tmp_path / "run" / "train" / "stage.json").unlink()
    return unkilled[0], tmp_path / "run"


def assert_one_sentence(code, printed, sentence):
    assert code == 2, printed
    assert printed.count("\nerror: ") + printed.startswith("error: ") == 1, printed
    assert printed.count(sentence) == 1, printed
    assert "Traceback" not in printed


def test_a_checkpoint_of_another_model_is_one_sentence(stopped):
    code, printed = say(*stopped, overrides=["model.width=32"])
    assert_one_sentence(code, printed, "the run in this folder was started with model.width = 16, the recipe now says 32")


def test_a_second_command_in_the_same_run_folder_is_one_sentence(stopped):
    recipe, run = stopped
    with only_writer(run / "train", "train"):
        code, printed = say(recipe, run)
    assert_one_sentence(code, printed, "another process is writing 'train' in this run folder; wait for it or use another --run-dir.")


def test_shards_of_another_vocabulary_are_one_sentence(stopped):
    recipe, run = stopped
    before = json.loads((run / "vocabulary" / "vocabulary.json").read_text(encoding="utf-8"))["fingerprint"]
    after = write_vocabulary(RunFolder(run), seed=2).fingerprint
    code, printed = say(recipe, run)
    assert_one_sentence(code, printed, after)
    assert before in printed
