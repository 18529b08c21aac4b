"""Retrieval pools: translations held out of pretraining by their English side.

A pool is small enough to leave the language its training text: min(max_pool, pool_share x distinct English
strings). Which English strings go into it follows one keyed order over keys for all languages, so that
pools share as many strings as the catalogues allow, and text held out for one language is mostly text held
out for the others. Inside a pool every folded English text and every folded translation occurs once, so
that the nearest neighbour is either the translation or wrong. Dev pools draw from keys that no test pool
of any language can draw from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xlm.config.recipe import RetrievalSection
from xlm.corpora.documents import SentencePair
from xlm.corpora.fold import fold
from xlm.seeding import key_int64
from xlm.tasks.evaluation_sets import RetrievalPair

FEWEST_WORDS = 3
MOST_WORDS = 40
MOST_CHARACTERS = 400
# One key in this many can only be drawn for dev pools, the others only for test pools.
DEV_KEYS = 8


@dataclass(frozen=True)
class RetrievalDraw:
    """A language's pools in keyed order, how many English strings it has, and what could not be drawn, by reason."""

    language: str
    test: tuple[RetrievalPair, ...]
    dev: tuple[RetrievalPair, ...]
    english_strings: int
    dropped: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Candidate:
    order: int
    pair: RetrievalPair
    folded_source: str
    folded_target: str


def draw_retrieval(language: str, pairs: Iterable[SentencePair], section: RetrievalSection, seed: int) -> RetrievalDraw:
    """Draw a language's test and dev pool from its pairs with English (English is the source)."""
    dropped: Counter[str] = Counter()
    by_key: dict[str, list[SentencePair]] = {}
    for pair in pairs:
        by_key.setdefault(pair.key, []).append(pair)
    candidates = _candidates(by_key, seed, dropped)
    size = min(section.max_pool, int(section.pool_share * len(by_key)))
    dev_size = min(section.dev_pool, size)
    test = _pool([candidate for candidate in candidates if not is_dev_key(candidate.pair.key, seed)], size)
    dev = _pool([candidate for candidate in candidates if is_dev_key(candidate.pair.key, seed)], dev_size)
    return RetrievalDraw(language, test, dev, len(by_key), dict(dropped))


def is_dev_key(key: str, seed: int) -> bool:
    """Return whether a key belongs to dev pools, in every language."""
    return key_int64(seed, "retrieval dev key", key) % DEV_KEYS == 0


def _candidates(by_key: Mapping[str, Sequence[SentencePair]], seed: int, dropped: Counter[str]) -> list[_Candidate]:
    """Return what a pool may hold, in the keyed order."""
    found = []
    for key, group in by_key.items():
        pair = group[0]
        words = pair.source.count(" ") + 1
        folded_source, folded_target = fold(pair.source), fold(pair.target)
        if words < FEWEST_WORDS:
            dropped[f"fewer than {FEWEST_WORDS} English words"] += 1
        elif words > MOST_WORDS or max(len(pair.source), len(pair.target)) > MOST_CHARACTERS:
            dropped["too long"] += 1
        elif len(group) > 1 and len({fold(other.target) for other in group}) > 1:
            dropped["several translations"] += 1
        elif not folded_source or not folded_target or folded_source == folded_target:
            dropped["not translated"] += 1
        else:
            order = key_int64(seed, "retrieval order", key)
            found.append(_Candidate(order, RetrievalPair(key, pair.source, pair.target), folded_source, folded_target))
    # Of keys that share a translation any one would do alone, but not the two together: none is drawn,
    # so that a pool does not depend on which of them came first.
    shared = Counter(candidate.folded_target for candidate in found)
    unambiguous = [candidate for candidate in found if shared[candidate.folded_target] == 1]
    if len(unambiguous) < len(found):
        dropped["translation of several English texts"] = len(found) - len(unambiguous)
    return sorted(unambiguous, key=lambda candidate: (candidate.order, candidate.pair.key))


def _pool(candidates: Sequence[_Candidate], size: int) -> tuple[RetrievalPair, ...]:
    pool: list[RetrievalPair] = []
    sources: set[str] = set()
    for candidate in candidates:
        if len(pool) == size:
            break
        if candidate.folded_source not in sources:
            sources.add(candidate.folded_source)
            pool.append(candidate.pair)
    return tuple(pool)
