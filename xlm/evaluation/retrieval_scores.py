"""Retrieval: whether the nearest sentence in the other language says the same thing.

Mean-pooled vectors and cosine (the Tatoeba protocol of XTREME, Hu et al. 2020), both directions, no
training of any kind. A pool is cut into disjoint blocks of 200 (or 2,000) pairs in a keyed order, each
block is searched by itself, and the mean over the blocks is the score: with one block of 200 the figure
would hang on which pairs happen to be in it. Pairs that fill no block are left over and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlm.evaluation.intent_task import SOURCE_LANGUAGE
from xlm.evaluation.percent import mean_of, rounded
from xlm.seeding import keyed_generator
from xlm.tasks.evaluation_sets import RetrievalPair, load_retrieval, retrieval_languages
from xlm.tasks.metrics import RetrievalScore, margin_retrieval, top1_retrieval

SIZES = (200, 2000)
MARGIN_SIZE = 200

Vectors = NDArray[np.float32]
# Texts and their language in, vectors [layers, n, width] out.
Embed = Callable[[Sequence[str], str], Vectors]


@dataclass(frozen=True)
class Pool:
    """English texts and their translations, in a keyed order; row i of one translates row i of the other."""

    language: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.sources)


@dataclass(frozen=True)
class PoolVectors:
    """Vectors [layers, n, width] of both sides of a pool."""

    sources: Vectors
    targets: Vectors


def load_pools(folder: Path, languages: Sequence[str], *, dev: bool = False) -> dict[str, Pool]:
    """Read the pools of those ``languages`` that have one."""
    present = set(retrieval_languages(folder, dev))
    return {language: make_pool(language, load_retrieval(folder, language, dev)) for language in languages if language in present}


def make_pool(language: str, pairs: Sequence[RetrievalPair]) -> Pool:
    """Order pairs by a keyed shuffle of their keys, so that the order in the file does not matter."""
    by_key = sorted(pairs, key=lambda pair: pair.key)
    order = keyed_generator("retrieval-blocks", language).permutation(len(by_key))
    chosen = [by_key[index] for index in order]
    return Pool(language, tuple(pair.source for pair in chosen), tuple(pair.target for pair in chosen))


def embed_pools(pools: Mapping[str, Pool], embed: Embed) -> dict[str, PoolVectors]:
    """Embed every pool; an English text that is in several pools is embedded once."""
    english = sorted({text for pool in pools.values() for text in pool.sources})
    row = {text: index for index, text in enumerate(english)}
    if not english:
        return {}
    sources = embed(english, SOURCE_LANGUAGE)
    return {
        language: PoolVectors(sources[:, [row[text] for text in pool.sources]], embed(pool.targets, language))
        for language, pool in pools.items()
    }


def choose_layer(vectors: Mapping[str, PoolVectors], layers: Sequence[int], size: int = MARGIN_SIZE) -> int:
    """Return the row of the layer with the best mean top-1 over the dev pools, both directions; the last row without any.

    Dev pools smaller than ``size`` are searched whole. This looks at pairs of other languages, dev pairs
    only, and the score file says so.
    """
    if len(layers) == 1 or not vectors:
        return len(layers) - 1
    scores = [
        np.mean(
            [
                _block_mean(pool.sources[row], pool.targets[row], min(size, pool.sources.shape[1]), top1_retrieval)["mean"]
                for pool in vectors.values()
            ]
        )
        for row in range(len(layers))
    ]
    return int(np.argmax(scores))


def pool_scores(vectors: PoolVectors, row: int = 0) -> dict[str, Any]:
    """Return ``top1_200``, ``top1_2000`` and ``margin_200`` in percent; None where the pool is smaller."""
    sources, targets = vectors.sources[row], vectors.targets[row]
    scores: dict[str, Any] = {f"top1_{size}": _block_mean(sources, targets, size, top1_retrieval) or None for size in SIZES}
    scores[f"margin_{MARGIN_SIZE}"] = _block_mean(sources, targets, MARGIN_SIZE, margin_retrieval) or None
    return scores


def retrieval_means(by_language: Mapping[str, Mapping[str, Any]], system: str) -> dict[str, float | None]:
    """Return a system's means over the languages whose pool is large enough, by size."""
    table = {}
    for size in SIZES:
        name = f"top1_{size}"
        scores = {language: entry["systems"][system][name] for language, entry in by_language.items()}
        table[name] = mean_of({language: score and score["mean"] for language, score in scores.items()})
    return table


def left_out(pools: Mapping[str, Pool], languages: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return for each size the languages that its mean lacks, and why."""
    others = [language for language in languages if language != SOURCE_LANGUAGE]
    return {
        f"top1_{size}": {
            language: f"pool of {len(pools[language])}" if language in pools else "no pool"
            for language in others
            if language not in pools or len(pools[language]) < size
        }
        for size in SIZES
    }


def _block_mean(sources: Vectors, targets: Vectors, size: int, search: Callable[[Any, Any], RetrievalScore]) -> dict[str, Any]:
    """Search each full block of ``size`` pairs; empty where there is none."""
    blocks = len(sources) // size if size else 0
    if not blocks:
        return {}
    found = [search(sources[start : start + size], targets[start : start + size]) for start in range(0, blocks * size, size)]
    return {
        "en_to_xx": rounded(100.0 * np.mean([score.forward for score in found])),
        "xx_to_en": rounded(100.0 * np.mean([score.backward for score in found])),
        "mean": rounded(100.0 * np.mean([score.mean for score in found])),
        "blocks": blocks,
    }
