"""Run every stage of a recipe in order: raw text in, report out.

Each stage is the script a user would start by hand, in a process of its own, so that memory is given
back between stages and a failure names its stage. Run again, finished stages say so and are skipped.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from xlm.config.strict import load_config
from xlm.corpora.manifest import load_manifest
from xlm.errors import USER_ERROR_EXIT_CODE, UserError, exits_cleanly
from xlm.report.text import closing_lines
from xlm.runs.cli import Invocation, parse_invocation, recipe_parser
from xlm.runs.cores import usable_cores
from xlm.runs.processes import free_port, gpu_count, interrupt_when_terminated, run_to_end
from xlm.runs.stage import RECORD
from xlm.runs.stages import Step, planned_steps, steps_until
from xlm.tracking.tracker import Tracker
from xlm.training.trainable import check_trainable
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.vocabulary import Vocabulary

HERE = Path(__file__).resolve().parent
# How long pretraining gets to finish its step and save after Ctrl-C, and any other stage to end.
SAVE_GRACE_S, END_GRACE_S = 60.0, 5.0
# Waiting threads sleep instead of taking a core from the other rank; libraries keep to themselves what is no news.
QUIET = {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false", "MLFLOW_LOGGING_LEVEL": "WARNING"}


def step_command(step: Step, arguments: argparse.Namespace, ranks: int) -> list[str]:
    """Return the command of a stage; pretraining goes through the DeepSpeed launcher, on a free port."""
    command = [str(HERE / step.script), "--recipe", str(arguments.recipe)]
    for override in arguments.set:
        command += ["--set", override]
    if arguments.run_dir is not None:
        command += ["--run-dir", str(arguments.run_dir)]
    if not step.launched:
        return [sys.executable, *command]
    # No host file: one left at the launcher's default path must not send this run to other machines.
    options = ["--hostfile", os.devnull, "--num_accelerators", str(ranks), "--master_port", str(free_port()), "--log_level", "critical"]
    launcher = str(Path(sys.executable).with_name("deepspeed"))
    return [sys.executable, launcher, *options, *command, "--deepspeed_config", str(arguments.deepspeed_config)]


def run_step(step: Step, arguments: argparse.Namespace) -> int:
    """Run one stage and return its exit code, 1 where it ends well but leaves nothing."""
    environment = {**QUIET, **os.environ}
    ranks = 1
    if step.launched:
        cores, gpus = usable_cores(), gpu_count()
        ranks = arguments.ranks or min(2, gpus or cores)
        # Ranks share the cores; without a GPU DeepSpeed need not look for one, and say so, in every process.
        environment |= {"OMP_NUM_THREADS": str(max(1, cores // ranks))} | ({} if gpus else {"DS_ACCELERATOR": "cpu"})
    grace_s = SAVE_GRACE_S if step.launched else END_GRACE_S
    code = run_to_end(step_command(step, arguments, ranks), environment, saves_when_stopped=step.launched, grace_s=grace_s)
    # The launcher also returns 0 when a signal ended it, so what counts is what lies on disk.
    return code or int(not (step.folder / RECORD).exists())


def failure_sentence(step: Step, code: int) -> str:
    """Return what to do after a stage failed."""
    if code == USER_ERROR_EXIT_CODE:
        return f"{step.script} stopped: put right what the error above names, then run the same command; it continues here."
    # A shell and the launcher report a process killed by signal 9 as 128 + 9 or 256 - 9.
    if code in (-9, 137, 247):
        return f"{step.script} was killed (signal 9), perhaps because memory ran out; the same command continues here."
    return f"{step.script} failed with exit code {code} (its messages are above); the same command continues here."


def check_files(invocation: Invocation) -> None:
    """Raise UserError now for a file that a stage would only miss hours from here."""
    check_trainable(invocation.recipe)
    load_manifest(invocation.recipe.corpora.manifest)
    vocabulary = invocation.recipe.vocabulary
    if vocabulary.is_dir():
        Vocabulary.load(vocabulary)
    else:
        load_config(VocabularySpec, vocabulary)
    config = invocation.arguments.deepspeed_config
    if not config.is_file():
        raise UserError("this DeepSpeed file does not exist; deepspeed_configs/ has one for each ZeRO stage.", file=config)


@exits_cleanly
def main() -> None:
    """Run the stages; stop at the first that fails, with its exit code."""
    parser = recipe_parser(__doc__ or "")
    config = HERE.parent / "deepspeed_configs" / "zero2.json"
    parser.add_argument("--deepspeed_config", type=Path, default=config, metavar="FILE", help="ZeRO settings (default: zero2.json)")
    parser.add_argument("--ranks", type=int, default=None, metavar="N", help="pretraining processes (default: up to two)")
    parser.add_argument("--until", default=None, metavar="SCRIPT", help="stop after this stage, for example pretrain.py")
    invocation = parse_invocation(parser)
    if invocation.arguments.ranks is not None and invocation.arguments.ranks < 1:
        raise UserError(f"--ranks {invocation.arguments.ranks} was given; at least one process has to pretrain.")
    check_files(invocation)
    interrupt_when_terminated()
    steps = steps_until(planned_steps(invocation), invocation.arguments.until)
    started = time.monotonic()
    for number, step in enumerate(steps, 1):
        elapsed_s = int(time.monotonic() - started)
        print(f"\n[{number}/{len(steps)}] {step.title}  ({elapsed_s // 60}:{elapsed_s % 60:02d} elapsed)", flush=True)
        code = run_step(step, invocation.arguments)
        if code != 0:
            print(failure_sentence(step, code), file=sys.stderr)
            sys.exit(code if code > 0 else 1)
    if invocation.arguments.until is not None:
        return
    root = invocation.folder.root
    print("\n" + "\n".join(closing_lines(root, Tracker(root, key="", name="").ui_command())))


if __name__ == "__main__":
    main()
