"""What was built, for the stage's record and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from xlm.shards.build import BuiltShards
from xlm.shards.index import CorpusEntry, ShardIndex
from xlm.shards.n_way import NWaySummary

# Corpora that the table shows one by one, the largest first.
TABLE_CORPORA = 60


def shards_summary(built: BuiltShards) -> dict[str, object]:
    """Return what the stage's record says."""
    index = built.index
    trained = [plan for key, plan in index.plans.items() if key[3] < index.variants]
    dropped: Counter[str] = Counter()
    for counts in (*(entry.dropped for entry in index.corpora.values()), *(plan.dropped for plan in index.plans.values())):
        dropped.update(counts)
    return {
        "vocabulary": index.vocabulary_fingerprint,
        "items": sum(entry.items for entry in index.corpora.values()),
        "tokens": sum(entry.tokens for entry in index.corpora.values()),
        "sentences": sum(entry.sentences for entry in index.corpora.values()),
        "shards": sum(len(entry.files) for entry in index.corpora.values()),
        "rows": sum(plan.rows for plan in trained),
        "held_out_rows": sum(plan.rows for plan in index.held_out()),
        "lowest_fill": min((plan.fill for plan in trained if plan.rows), default=1.0),
        "dropped": dict(dropped),
        "n_way": None if built.n_way is None else asdict(built.n_way),
    }


def n_way_notes(n_way: NWaySummary | None, variants: int) -> Iterator[str]:
    """Yield what a user must know of n-way pairs: that some are never drawn, and how to change that."""
    if n_way is not None and n_way.pairs_in_no_variant:
        yield (
            f"note: {n_way.pairs_in_no_variant:,} of {n_way.pairs:,} n-way pairs are in no variant (shards.variants is {variants}) "
            f"and left out; from {n_way.variants_for_all} variants on every pair is in one."
        )


def shards_table(index: ShardIndex) -> Iterator[str]:
    """Yield the lines of the table: one a corpus and plan (variant 0), documents before pairs."""
    shown = sorted(index.corpora.values(), key=lambda entry: (-entry.tokens, entry.name))[:TABLE_CORPORA]
    width = max((len(entry.name) for entry in shown), default=12)
    yield f"{'corpus':<{width}} {'items':>9} {'tokens':>11}  {'plan':<20} {'rows':>8} {'fill':>7} {'dropped':>8}"
    for entry in sorted(shown, key=lambda entry: (entry.kind, entry.name)):
        yield from _corpus_lines(index, entry, width)
    rest = index.corpora.keys() - {entry.name for entry in shown}
    if rest:
        items, tokens = (sum(getattr(index.corpora[name], what) for name in rest) for what in ("items", "tokens"))
        yield f"{f'{len(rest):,} smaller':<{width}} {items:>9,} {tokens:>11,}"
    if index.held_out_share:
        held_out = [plan for plan in index.held_out() if plan.rows]
        rows, lengths = sum(plan.rows for plan in held_out), {plan.length for plan in held_out}
        yield (
            f"held out of training, for validation: {rows:,} rows of {max(lengths, default=0)} positions in {len(held_out):,} corpora "
            f"(shards.held_out_share {index.held_out_share:g})"
        )


def _corpus_lines(index: ShardIndex, entry: CorpusEntry, width: int) -> Iterator[str]:
    """Yield the lines of one corpus; what is dropped counts empty items and those left out of the plan."""
    first = f"{entry.name:<{width}} {entry.items:>9,} {entry.tokens:>11,}"
    plans = [plan for key, plan in sorted(index.plans.items()) if key[0] == entry.name and key[3] == 0]
    if not plans:
        yield f"{first}  {'–':<20} {'':>8} {'':>7} {sum(entry.dropped.values()):>8,}"
    for plan in plans:
        dropped = sum(entry.dropped.values()) + sum(plan.dropped.values())
        yield f"{first}  {f'{plan.layout} {plan.length}':<20} {plan.rows:>8,} {plan.fill:>7.2%} {dropped:>8,}"
        first = " " * len(first)
