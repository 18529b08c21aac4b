"""Show what the model sees: any global batch of a recipe, or a text of your own: text, pieces, languages, masks, positions, sources."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from xlm.batching.given_text import TypedRows
from xlm.batching.loader import BatchLoader
from xlm.batching.packed_batch import OBJECTIVES, PackedBatch
from xlm.batching.rendering import lines, show
from xlm.config.phases import Objective, Phase
from xlm.errors import UserError, exits_cleanly
from xlm.mixing.data_plan import DataPlan
from xlm.runs.cli import Invocation, parse_invocation, recipe_parser
from xlm.runs.stage import read_record
from xlm.shards.reader import ShardSet
from xlm.storage.store import open_store
from xlm.training.run_record import read_run_record
from xlm.vocab.vocabulary import Vocabulary


def parser() -> argparse.ArgumentParser:
    """Return the command line: a recipe, and one of --step, --pair and --text."""
    result = recipe_parser(__doc__ or "")
    what = result.add_mutually_exclusive_group(required=True)
    what.add_argument("--step", type=int, metavar="N", help="global batch N of the recipe's run, from 0")
    what.add_argument("--pair", nargs=2, metavar=("A", "B"), help="a text and its translation")
    what.add_argument("--text", metavar="C", help="one text; code-switched text gets its languages by script")
    result.add_argument("--rank", type=int, metavar="R", help="with --step: only what rank R gets (default: the whole batch at once)")
    result.add_argument("--world-size", type=int, metavar="W", help="with --step: dealt to W ranks (default with --rank: as the run is)")
    result.add_argument("--languages", nargs="+", default=[], metavar="L", help="with --pair and --text: BCP-47, in order")
    result.add_argument("--objective", choices=OBJECTIVES, help="with --pair and --text (default: tlm for a pair, mlm for a text)")
    result.add_argument("--json", action="store_true", help="plain values instead of text to read")
    return result


@exits_cleanly
def main() -> None:
    """Print a batch or a given text."""
    invocation = parse_invocation(parser())
    check_options(invocation.arguments)
    read_record(invocation.folder.vocabulary)
    vocabulary = Vocabulary.load(invocation.folder.vocabulary)
    if invocation.arguments.step is not None:
        batches, languages, heading = batch_of_step(invocation, vocabulary)
    else:
        batch, languages, heading = batch_of_text(invocation, vocabulary)
        batches = [batch]
    printer = print_json if invocation.arguments.json else print_text
    try:
        printer(batches, vocabulary, languages, heading)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough; what is still buffered must not be tried again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_options(arguments: argparse.Namespace) -> None:
    """Raise UserError for options that say nothing about what is to be shown."""
    if arguments.step is not None and (arguments.languages or arguments.objective):
        raise UserError("--languages and --objective go with --pair and --text; a step has those of its phase: leave them out.")
    if arguments.step is None and (arguments.rank is not None or arguments.world_size is not None):
        raise UserError("--rank and --world-size go with --step; a text of your own is not dealt to ranks: leave them out.")


def rank_and_ranks(arguments: argparse.Namespace, train_folder: Path) -> tuple[int, int]:
    """Return whose part of a batch is asked for, and how many ranks there are; raises UserError where there is no such rank."""
    world_size: int | None = arguments.world_size
    if world_size is None:
        record = read_run_record(train_folder)
        if record is None:
            raise UserError("--rank needs --world-size: how many ranks a batch is dealt to (no run was started yet that would say).")
        world_size = record.world_size
    if world_size < 1:
        raise UserError(f"--world-size {world_size}: there is at least one rank.")
    rank: int = arguments.rank or 0
    if not 0 <= rank < world_size:
        raise UserError(f"there is no rank {rank} among {world_size}; ranks count from 0, and --world-size says how many there are.")
    return rank, world_size


def batch_of_step(invocation: Invocation, vocabulary: Vocabulary) -> tuple[list[PackedBatch], Sequence[str], dict[str, object]]:
    """Build one rank's part of a global batch, exactly as training does."""
    arguments, recipe = invocation.arguments, invocation.recipe
    whole = arguments.rank is None and arguments.world_size is None
    rank, world_size = (0, 1) if whole else rank_and_ranks(arguments, invocation.folder.train)
    shards = _open_shards(invocation, vocabulary)
    shards.index.check_variants(recipe.shards.variants)
    plan = DataPlan(recipe, shards.index)
    phase, step_in_phase = plan.phase_at(arguments.step)
    loader = BatchLoader(
        plan,
        shards,
        vocabulary,
        recipe.seed,
        rank=rank,
        world_size=world_size,
        # The whole batch is not dealt: one micro-batch holds everything.
        micro_batch_tokens=recipe.training.tokens_per_step if whole else recipe.training.micro_batch_tokens,
        with_provenance=True,
    )
    heading = {
        "step": arguments.step,
        "phase": recipe.phases[phase].name,
        "step in phase": step_in_phase,
        "mask rate": recipe.phases[phase].mask_rate_at(step_in_phase),
        "rank": f"{rank} of {world_size}",
    }
    return loader.batch(arguments.step), plan.languages, heading


def batch_of_text(invocation: Invocation, vocabulary: Vocabulary) -> tuple[PackedBatch, Sequence[str], dict[str, object]]:
    """Lay out the texts of the command line as a row of the first phase that has their objective."""
    arguments, recipe = invocation.arguments, invocation.recipe
    objective: Objective = arguments.objective or ("tlm" if arguments.pair else "mlm")
    phase: Phase = next((phase for phase in recipe.phases if objective in phase.objectives), recipe.phases[0])
    counts = _open_shards(invocation, vocabulary).piece_counts() if phase.masking.selection == "frequency" else None
    rows = TypedRows(vocabulary, phase, recipe.seed, counts)
    languages = arguments.languages
    if arguments.pair:
        batch = rows.pair(tuple(arguments.pair), objective, languages)
    else:
        if not languages:
            raise UserError("--text needs --languages: one, or several for code-switched text (such as zh-Hans en).")
        batch, languages = rows.text(arguments.text, objective, languages)
    unmasked = objective in ("contrastive", "clm")
    heading: dict[str, object] = {"objective": objective, "mask rate": None if unmasked else phase.mask_rate_at(0)}
    if objective == "tlm":
        heading["form"] = phase.objectives[objective].form if objective in phase.objectives else "infoxlm"
    if batch.tokens > phase.sequence_length:
        heading["longer than a row"] = f"{batch.tokens} tokens, rows hold {phase.sequence_length}"
    return batch, languages, heading


def _open_shards(invocation: Invocation, vocabulary: Vocabulary) -> ShardSet:
    store = open_store(invocation.recipe.shards.storage, invocation.folder.shards)
    store.record()  # says so where the stage has not finished
    return ShardSet(store, vocabulary.fingerprint, vocabulary.size)


def print_text(batches: Iterable[PackedBatch], vocabulary: Vocabulary, languages: Sequence[str], heading: dict[str, object]) -> None:
    """Print for people."""
    print(" · ".join(f"{name} {_readable(value)}" for name, value in heading.items()))
    for number, batch in enumerate(batches):
        predicted = int(batch.labels.numel())
        print(f"\nmicro-batch {number}: {batch.sequences:,} sequences, {batch.tokens:,} tokens, {predicted:,} predicted\n")
        for sequence in show(batch, vocabulary, languages):
            print("\n".join(lines(sequence)))


def _readable(value: object) -> str:
    if value is None:
        return "none (unmasked)"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_json(batches: Iterable[PackedBatch], vocabulary: Vocabulary, languages: Sequence[str], heading: dict[str, object]) -> None:
    """Print for programs: one object."""
    shown = [[sequence.as_json() for sequence in show(batch, vocabulary, languages)] for batch in batches]
    print(json.dumps({**heading, "micro_batches": shown}, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
