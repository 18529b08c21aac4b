"""The data plan at the scale it is made for: 1,833 languages of 10^3 to 10^12 tokens, 3T tokens, 4,096 ranks.

Nothing is read or tokenised: an index as a shards folder of that size would have it (shards of 64M tokens,
row plans of lengths 1,024 and 8,192) is written, and everything that depends on the number of languages,
shards, rows, steps and ranks is done as in a run. Phases follow mmBERT (60, 110, all languages, with
sampling that flattens, in the second along a ramp), with a cap of five epochs a language. Measured, each in a
process of its own:

- the plan with all that it says of the run: seconds and peak memory;
- the start of single ranks at steps far into the run, from an empty process to the rank's rows;
- rows: none twice in an epoch, whole epochs of sampled languages;
- counts against the exact shares, computed here once more from recipe and index, caps and ramp included;
- the time of a batch at steps 10 and 10^7;
- what nodes of eight ranks must fetch of shards that lie elsewhere, batch by batch.

There is no peer: ratios are the allowed over the measured, above 1 where the promise holds.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise, product
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from results import write_results

from xlm.batching.assign import Assignment
from xlm.config.phases import Phase, value_at
from xlm.config.recipe import Recipe
from xlm.mixing.batch_rows import BatchRows
from xlm.mixing.data_plan import DataPlan
from xlm.seeding import key_digest, keyed_generator
from xlm.shards.index import CorpusEntry, PlanEntry, PlanFile, ShardFile, ShardIndex

SHARD_TOKENS = 64_000_000
TOKENS_PER_STEP = 1 << 25
RANKS_PER_NODE = 8
WINDOW = 4
LIMITS = {"plan_s": 60.0, "plan_mb": 4096.0, "start_s": 10.0, "start_mb": 500.0}


@dataclass(frozen=True)
class Scale:
    """How large a run: languages of ``smallest`` to ``largest`` tokens, ``tokens`` trained on by ``ranks``."""

    languages: int = 1833
    smallest: int = 10**3
    largest: int = 10**12
    tokens: int = 3 * 10**12
    ranks: int = 4096
    tokens_per_step: int = TOKENS_PER_STEP
    shard_tokens: int = SHARD_TOKENS
    lengths: tuple[int, int] = (1024, 8192)
    cap: float | None = 5.0

    def names(self) -> list[str]:
        """Return made-up language codes, the largest language first."""
        return ["".join(letters) for letters, _ in zip(product(ascii_lowercase, repeat=3), range(self.languages), strict=False)]

    def sizes(self) -> list[int]:
        """Return the tokens of each language: a power law of rank, from ``largest`` to ``smallest``."""
        exponent = np.log(self.largest / self.smallest) / np.log(self.languages)
        return [round(self.largest * float(rank) ** -exponent) for rank in range(1, self.languages + 1)]

    def index(self) -> ShardIndex:
        """Return the index of shards of that much text, with file names and checksums as real ones have."""
        corpora: dict[str, CorpusEntry] = {}
        plans: dict[Any, PlanEntry] = {}
        for name, tokens in zip(self.names(), self.sizes(), strict=True):
            shards = max(1, -(-tokens // self.shard_tokens))
            of_shards = [tokens * (number + 1) // shards - tokens * number // shards for number in range(shards)]
            checksums = [key_digest(name, number, size_bytes=32).hex() for number in range(shards)]
            files = tuple(
                ShardFile(f"{name}/{number:06}.arrow", max(1, count // 500), count, max(1, count // 25), 2 * count, checksum)
                for number, (count, checksum) in enumerate(zip(of_shards, checksums, strict=True))
            )
            corpora[name] = CorpusEntry(name, "monolingual", (name,), max(1, tokens // 500), tokens, max(1, tokens // 25), files)
            for length in self.lengths:
                blocks = tuple(
                    PlanFile(f"{name}/documents-{length}-0/{number:06}.arrow", max(1, -(-count // (length - 4))), count // 25, checksum)
                    for number, (count, checksum) in enumerate(zip(of_shards, checksums, strict=True))
                )
                rows = sum(block.rows for block in blocks)
                plans[name, "documents", length, 0] = PlanEntry(name, "documents", length, 0, rows, rows, tokens, 0.998, blocks)
        return ShardIndex("made-up", 1, corpora, plans)

    def recipe(self, *, window: int | None = None, tokens_per_step: int | None = None) -> Recipe:
        """Return a recipe of three phases, two thirds, two ninths and one ninth of the tokens."""
        step = tokens_per_step or self.tokens_per_step
        names = self.names()
        counts = (max(2, self.languages // 30), max(3, self.languages // 17), self.languages)
        alphas = (0.7, {"start": 0.7, "end": 0.5}, 0.3)
        phases = [
            {
                "name": f"of_{count}",
                "steps": max(1, round(self.tokens * share / step)),
                "sequence_length": length,
                "languages": sorted(names[:count]),
                "sampling": {"kind": "temperature", "alpha": alpha, "max_epochs": self.cap},
                "objectives": {"mlm": {"share": 1.0}},
                "mask_rate": rate,
            }
            for count, share, length, alpha, rate in zip(
                counts, (6 / 9, 2 / 9, 1 / 9), (self.lengths[0], *self.lengths[1:] * 2), alphas, (0.3, 0.15, 0.05), strict=True
            )
        ]
        return Recipe.model_validate(
            {
                "name": "scale",
                "seed": 1,
                "corpora": {"manifest": "none"},
                "vocabulary": "none",
                "shards": {"shuffle_window": window},
                "embeddings": {"kind": "random"},
                "model": {"width": 8, "layers": 1, "heads": 1, "feed_forward": 8, "max_positions": max(self.lengths)},
                "phases": phases,
                "training": {"tokens_per_step": step, "micro_batch_tokens": max(self.lengths), "optimizer": {"learning_rate": 1e-3}},
            }
        )


def used() -> dict[str, float]:
    """Return the most memory that this process has had resident, in MB of 2^20 bytes, and the seconds of a core it took."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"peak_mb": usage.ru_maxrss / 1024, "core_s": usage.ru_utime + usage.ru_stime}


def plan_run(scale: Scale, folder: Path) -> dict[str, Any]:
    """Read the index, plan the run and add up what it draws."""
    started = time.perf_counter()
    index = ShardIndex.load(folder)
    plan = DataPlan(scale.recipe(window=WINDOW), index)
    by_phase = plan.planned_by_phase()
    seconds = time.perf_counter() - started
    epochs = [Fraction(0)] * len(plan.leaves)
    for phase, drawn in zip(plan.recipe.phases, by_phase, strict=True):
        for number, leaf in enumerate(drawn):
            epochs[number] += Fraction(leaf.rows, index.plan(leaf.corpus, "documents", phase.sequence_length, 0).rows)
    if scale.cap is not None and max(epochs) > Fraction(scale.cap):
        raise SystemExit(f"a language is seen {float(max(epochs))} times under a cap of {scale.cap}")
    return {
        "seconds": seconds,
        **used(),
        "steps": plan.total_steps,
        "rows": sum(leaf.rows for phase in by_phase for leaf in phase),
        "caps_that_bind": len(plan.cap_events),
        "most_epochs": float(max(epochs)),
    }


def start_rank(scale: Scale, folder: Path, rank: int, step: int) -> dict[str, Any]:
    """Do what a rank does before its first batch at ``step``, imports not counted; the caller times the whole process."""
    started = time.perf_counter()
    recipe = scale.recipe(window=WINDOW)
    plan = DataPlan(recipe, ShardIndex.load(folder))
    assignment = Assignment(plan, world_size=scale.ranks, micro_batch_tokens=recipe.training.micro_batch_tokens)
    mine, _ = assignment.rows_of(plan.rows(step), rank)
    return {"rank": rank, "step": step, "rows": len(mine), "plan_s": time.perf_counter() - started, **used()}


def check_rows(scale: Scale, folder: Path, *, batches: int = 100, most_rows: int = 2_000_000) -> dict[str, Any]:
    """Draw stretches of batches and whole epochs by brute force; ends the program where a row comes twice or is missing."""
    index = ShardIndex.load(folder)
    plan = DataPlan(scale.recipe(window=WINDOW), index)
    drawn = 0
    edges = list(accumulate((phase.steps for phase in plan.recipe.phases), initial=0))
    for first, stop in pairwise(edges):
        for start in (first, (first + stop) // 2, stop - batches):
            steps = [plan.rows(step) for step in range(max(first, start), min(stop, max(first, start) + batches))]
            leaf, epoch, row = (np.concatenate([getattr(batch, name) for batch in steps]) for name in ("leaf", "epoch", "row"))
            codes = (((leaf << 14) | epoch) << 34) | row
            if np.unique(codes).size < codes.size:
                raise SystemExit(f"a row was drawn twice in an epoch between steps {start} and {start + batches}")
            drawn += codes.size
    return {"batch_rows_checked": drawn, **_check_epochs(plan, index, most_rows)}


def _check_epochs(plan: DataPlan, index: ShardIndex, most_rows: int) -> dict[str, Any]:
    """Draw every row of an epoch of each language whose epoch is not too long, and a sample of places of the others."""
    generator = keyed_generator("scale", "epochs")
    complete = sampled = 0
    last = len(plan.recipe.phases) - 1
    for number, leaf in enumerate(plan.leaves):
        rows = index.plan(leaf.corpus, "documents", plan.recipe.phases[last].sequence_length, 0).rows
        count = min(rows, most_rows)
        whole = count == rows
        if whole and number % 7 and rows > 10_000:
            continue  # a seventh of the middling languages is enough
        places = np.arange(rows) if whole else np.unique(generator.integers(0, rows, count))
        _, found = plan.locate(last, np.full(places.shape, number), places + 3 * rows)  # the fourth epoch
        if np.unique(found).size < places.size or found.min() < 0 or found.max() >= rows:
            raise SystemExit(f"an epoch of '{leaf.corpus}' has a row twice")
        complete += whole
        sampled += not whole
    return {"whole_epochs": complete, "sampled_epochs": sampled}


def check_shares(scale: Scale, folder: Path, *, samples: int = 200) -> dict[str, Any]:
    """Measure how far counts are from the exact shares.

    Those are computed from recipe and index, in extended precision; of the plan only its counts are used. A language
    that comes to its cap is to stop there or up to two rows before, and the others share what it leaves from where it
    did stop: hundreds that stop a row early are hundreds of rows more for the few that go on.
    """
    index = ShardIndex.load(folder)
    plan = DataPlan(scale.recipe(window=WINDOW), index)
    names = [leaf.corpus for leaf in plan.leaves]
    tokens = np.array([index.tokens(name) for name in names], dtype=np.longdouble)
    exact, epochs = np.zeros((2, len(names)), dtype=np.longdouble)
    before, worst, short, is_full = 0, 0.0, 0, np.zeros(len(names), dtype=np.bool_)
    for phase in plan.recipe.phases:
        of_an_epoch = np.array([index.plan(name, "documents", phase.sequence_length, 0).rows for name in names], dtype=np.longdouble)
        is_drawn = np.isin(names, phase.languages)
        stairs = _stairs(phase)
        for steps, alpha in stairs:
            rows = steps * (plan.recipe.training.tokens_per_step // phase.sequence_length)
            weights = np.where(is_drawn, tokens**alpha, 0)
            room = np.full(len(names), rows + 1, dtype=np.longdouble)
            if phase.sampling.max_epochs is not None:
                # The last whole row under the cap, but for what floating point leaves of one.
                whole = np.floor(exact + (phase.sampling.max_epochs - epochs) * of_an_epoch + 1e-6)
                room = np.clip(whole - exact, 0, room)
                is_full = is_drawn & (filled(weights, room, rows) >= room)
                stops = plan.tree.counts(before + rows)
                short = max(short, int((whole - stops)[is_full].max(initial=0)))
                room[is_full] = np.clip(stops - exact, 0, room)[is_full]
            points = max(3, samples // len(stairs))
            for at in (rows * point // points for point in range(1, points + 1)):
                counts = plan.tree.counts(before + at)
                drawn = filled(weights, room, at)
                worst = max(worst, float(np.abs(counts - exact - drawn).max()))
                if int(counts.sum()) != before + at:
                    raise SystemExit(f"counts do not add up after {before + at} rows")
            exact += drawn
            epochs += drawn / of_an_epoch
            before += rows
    if worst > 2 or short > 2:
        raise SystemExit(f"counts are {worst:.2f} rows from the exact shares, and stop {short} rows before a cap")
    return {
        "plateaus": len(plan.plateaus),
        "at_cap": int(is_full.sum()),
        "most_rows_short_of_cap": short,
        "worst_rows_from_exact": worst,
        "bound_between_changes": plan.tree.bound,
    }


def _stairs(phase: Phase) -> list[tuple[int, float]]:
    """Return (steps, alpha) of every stair of a phase's sampling, as docs/data.md has it: equal stairs, each at its middle value."""
    count = phase.ramp_plateaus if phase.has_ramps else 1
    edges = pairwise(phase.steps * number // count for number in range(count + 1))
    return [(stop - first, value_at(phase.sampling.alpha, (first + stop - 1) / 2 / (phase.steps - 1))) for first, stop in edges]


def filled(weights: np.ndarray, room: np.ndarray, rows: int) -> np.ndarray:
    """Return min(weight * v, room) [languages], with the v that makes them add up to ``rows``; room is finite."""
    room = np.where(weights > 0, room, 0)
    full_at = room / np.where(weights > 0, weights, 1)  # the v at which a language has no room left
    order = np.argsort(full_at)
    of_full = np.concatenate([[0], np.cumsum(room[order])])
    weight_left = weights.sum() - np.concatenate([[0], np.cumsum(weights[order])])
    full = int(np.searchsorted(of_full[1:] + full_at[order] * weight_left[1:], rows))
    if full == len(room):
        raise SystemExit("the caps leave fewer rows than the run draws")
    return np.minimum(weights * ((rows - of_full[full]) / weight_left[full]), room)


def time_batches(scale: Scale, folder: Path) -> dict[str, Any]:
    """Time batches of 32 rows at step 10 and at step 10^7, and whole batches of the run."""
    index = ShardIndex.load(folder)
    small = DataPlan(scale.recipe(tokens_per_step=32 * scale.lengths[0]), index)
    last = small.recipe.phases[0].steps - 1
    figures = {f"rows_32_step_{step}_us": 1e6 * _best(small, min(step, last)) for step in (10, 10**7)}
    for window in (None, WINDOW):
        large = DataPlan(scale.recipe(window=window), index)
        for phase, first in enumerate(accumulate((phase.steps for phase in large.recipe.phases[:-1]), initial=0)):
            label = f"rows_{large.rows_per_step(phase)}_phase_{phase}_window_{window}_ms"
            figures[label] = 1e3 * _best(large, first + large.recipe.phases[phase].steps // 2, rounds=10)
    return figures


def _best(plan: DataPlan, step: int, rounds: int = 60) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        plan.rows(step)
        times.append(time.perf_counter() - started)
    return min(times)


def count_fetches(scale: Scale, folder: Path, *, batches: int = 60) -> list[dict[str, Any]]:
    """Count the (corpus, block) pairs that nodes see for the first time, over stretches of batches in every phase."""
    recipe = scale.recipe(window=WINDOW)
    index = ShardIndex.load(folder)
    plan = DataPlan(recipe, index)
    assignment = Assignment(plan, world_size=scale.ranks, micro_batch_tokens=recipe.training.micro_batch_tokens)
    found = []
    for phase, first in enumerate(accumulate((phase.steps for phase in recipe.phases[:-1]), initial=0)):
        for start in (first, first + recipe.phases[phase].steps // 3):
            found.append({"phase": phase, "step": start, **_fetches(plan, index, assignment, range(start, start + batches))})
    return found


def _fetches(plan: DataPlan, index: ShardIndex, assignment: Assignment, steps: range) -> dict[str, Any]:
    """Return new pairs a batch and node.

    A node's rows of an objective are consecutive in the order of the batch, which is by corpus and row, hence by
    block. So a node reads, of all but its first and last corpus, all the rows that the batch has, from at most 2 W
    blocks of each (W in a window, W more where the batch crosses an edge; the program ends where there are more).
    What it fetches anew is less by all that it has kept: blocks change for a corpus only where a window ends.
    """
    phase = plan.phase_at(steps[0])[0]
    length = plan.recipe.phases[phase].sequence_length
    block_rows = [np.array(index.plan(leaf.corpus, "documents", length, 0).block_rows) for leaf in plan.leaves]
    first_rows = np.concatenate([[0], np.cumsum([rows.sum() for rows in block_rows])])
    block_starts = np.cumsum(np.concatenate(block_rows)) - np.concatenate(block_rows)
    blocks = len(block_starts)
    leaf_of_block = np.repeat(np.arange(len(block_rows)), [len(rows) for rows in block_rows])
    nodes = -(-assignment.world_size // RANKS_PER_NODE)
    seen = np.zeros((nodes, blocks), dtype=np.bool_)
    new: list[np.ndarray] = []
    used: list[np.ndarray] = []
    most_of_corpus = 0
    for step in steps:
        rows = plan.rows(step)
        node_of = _nodes(assignment, rows)
        block = np.searchsorted(block_starts, first_rows[rows.leaf] + rows.row, side="right") - 1
        pairs = np.unique(node_of * blocks + block)
        of_node, of_block = np.divmod(pairs, blocks)
        _, of_corpus = np.unique(of_node * len(block_rows) + leaf_of_block[of_block], return_counts=True)
        most_of_corpus = max(most_of_corpus, int(of_corpus.max()))
        if most_of_corpus > 2 * WINDOW:
            raise SystemExit(f"a node reads {most_of_corpus} blocks of one corpus in step {step}; a window has {WINDOW}")
        fresh = ~seen[of_node, of_block]
        seen[of_node, of_block] = True
        new.append(np.bincount(of_node[fresh], minlength=nodes))
        used.append(np.bincount(of_node, minlength=nodes))
    later = np.array(new[1:])
    return {
        "batches": len(steps),
        "nodes": nodes,
        "read_per_batch_mean": float(np.mean(used)),
        "read_per_batch_worst": int(np.max(used)),
        "first_batch_mean": float(new[0].mean()),
        "first_batch_worst": int(new[0].max()),
        "new_per_batch_mean": float(later.mean()),
        "new_per_batch_worst": int(later.max()),
        "fetches": int(np.sum(new)),
        "distinct_blocks": int(seen.any(axis=0).sum()),
        "most_of_a_corpus": most_of_corpus,
    }


def _nodes(assignment: Assignment, rows: BatchRows) -> np.ndarray:
    """Return the node [R] that computes each row of a batch."""
    node = np.empty(len(rows), dtype=np.int64)
    for cuts in assignment.cuts(rows):
        counts = np.diff(cuts)
        node[cuts[0] : cuts[-1]] = np.repeat(np.arange(len(counts)) // RANKS_PER_NODE, counts)
    return node


MEASURES = {"plan": plan_run, "rows": check_rows, "shares": check_shares, "batches": time_batches, "fetches": count_fetches}


def in_child(folder: Path, *arguments: object) -> tuple[Any, float]:
    """Run a measure in a process of its own; return what it found and the seconds of the whole process."""
    started = time.perf_counter()
    finished = subprocess.run([sys.executable, __file__, str(folder), *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(finished.stdout), time.perf_counter() - started


def child(arguments: Sequence[str]) -> None:
    """Do what `in_child` asks for and print what was found."""
    folder, name, *rest = arguments
    scale = Scale()
    found = start_rank(scale, Path(folder), *map(int, rest)) if name == "rank" else MEASURES[name](scale, Path(folder))
    print(json.dumps(found))


def ratios_of(plan: Mapping[str, float], ranks: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the allowed over the measured."""
    return {
        "plan_seconds_allowed": LIMITS["plan_s"] / plan["process_s"],
        "plan_memory_allowed": LIMITS["plan_mb"] / plan["peak_mb"],
        "start_seconds_allowed": LIMITS["start_s"] / max(rank["process_s"] for rank in ranks),
        "start_memory_allowed": LIMITS["start_mb"] / max(rank["peak_mb"] for rank in ranks),
    }


def main() -> None:
    """Measure everything, print it and write ``results/scale.json``."""
    if len(sys.argv) > 1:
        child(sys.argv[1:])
        return
    scale = Scale()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scale.index().save(folder)
        plan, seconds = in_child(folder, "plan")
        plan["process_s"] = seconds
        print(
            f"plan: {seconds:.1f} s ({plan['core_s']:.1f} of a core), {plan['peak_mb']:.0f} MB, {plan['rows']:,} rows, "
            f"{plan['caps_that_bind']:,} caps bind",
            flush=True,
        )
        ranks = []
        for rank, step in ((0, 0), (scale.ranks // 2, plan["steps"] // 2), (scale.ranks - 1, plan["steps"] - 1)):
            found, seconds = in_child(folder, "rank", rank, step)
            ranks.append({**found, "process_s": seconds})
            print(f"rank {rank} at step {step:,}: {seconds:.1f} s ({found['core_s']:.1f} of a core), {found['peak_mb']:.0f} MB", flush=True)
        measured = {name: in_child(folder, name)[0] for name in ("shares", "rows", "batches", "fetches")}
    print(f"shares: {measured['shares']}")
    print(f"rows: {measured['rows']}")
    print(f"batches: {measured['batches']}")
    for phase in measured["fetches"]:
        print(
            f"step {phase['step']:,}: a node of {RANKS_PER_NODE} ranks fetches {phase['new_per_batch_mean']:.3f} blocks a batch "
            f"(worst {phase['new_per_batch_worst']}; it reads at most {phase['most_of_a_corpus']} of a corpus, 2 W is {2 * WINDOW}), "
            f"{phase['first_batch_mean']:.1f} for the first batch; {phase['fetches']:,} fetches of {phase['distinct_blocks']:,} blocks"
        )
    ratios = ratios_of(plan, ranks)
    ratios["step_10_over_step_10_7"] = measured["batches"]["rows_32_step_10_us"] / measured["batches"]["rows_32_step_10000000_us"]
    print(f"written: {write_results('scale', ratios, {'plan': plan, 'ranks': ranks, **measured, 'limits': LIMITS})}")


if __name__ == "__main__":
    main()
