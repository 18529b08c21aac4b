"""What a linear classifier reads of a sentence: mean-pooled states of a layer or of all, whitened by what translations differ in.

Directions in which a sentence and its translation differ tell a classifier nothing that transfers, but English
training data cannot say which they are. Pairs of pretraining text can: with D the mean of (x - y)(x - y)' / 2 over
them, vectors are mapped by D^-1/2, so that a penalty on weights is one on what they make of those differences.
That is within-class covariance normalisation (Hatch, Kajarekar & Stolcke 2006), a class being a sentence and its
translation. Differences are not centred: what tells whole languages apart (their means) goes down as well, and nobody
has to know which language a sentence is in.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xlm.config.recipe import EvaluationSection, WhiteningSection
from xlm.corpora.documents import SentencePair, pair_name
from xlm.corpora.store import pair_names, read_pairs
from xlm.errors import UserError
from xlm.evaluation.intent_task import SOURCE_LANGUAGE
from xlm.seeding import keyed_generator

# The smallest variances are raised by this share of the mean one: few pairs know them badly.
FLOOR_SHARE = 0.01

Features = NDArray[np.float32]
# Texts and their language in, vectors [choices, n, features] out: one choice a layer, unless layers are joined.
Read = Callable[[Sequence[str], str], Features]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Readout:
    """``layers`` index the encoder's states (0: embeddings, -1: final): choices for a classifier, or all of them side by side."""

    layers: tuple[int, ...]
    joined: bool = False

    def arrange(self, states: Features) -> Features:
        """Return vectors [choices, n, features] of pooled states [layers, n, width]."""
        if not self.joined:
            return states
        return np.concatenate(list(states), axis=1)[None]

    @property
    def unjoined(self) -> Readout:
        """What is read where no pairs can whiten it, words and retrieval: the same choices, or the final layer of those joined."""
        return Readout((-1,)) if self.joined else self

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the choices, as scores have them."""
        return ("joined",) if self.joined else tuple(map(layer_name, self.layers))


@dataclass(frozen=True)
class Translations:
    """``targets[i]``, in ``language``, translates the English text ``sources[i]``."""

    language: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]


def chosen_readout(evaluation: EvaluationSection, layers: int) -> Readout:
    """Return what the recipe says of a model with so many layers; raises UserError for a layer that it lacks."""
    if evaluation.layers == "joined":
        return Readout((*range(layers), -1), joined=True)
    if evaluation.layers == "final":
        return Readout((-1,))
    wrong = [layer for layer in evaluation.layers if not 0 <= layer <= layers]
    if wrong:
        raise UserError(
            f"evaluation.layers is {list(evaluation.layers)}; this model has layers 0 (embeddings) to {layers} (final); "
            "'final' and 'joined' (all of them, side by side) are allowed too."
        )
    return Readout(tuple(-1 if layer == layers else layer for layer in evaluation.layers))


def load_translations(corpus: Path, languages: Sequence[str], section: WhiteningSection | None, seed: int) -> list[Translations]:
    """Draw pairs with English from the cleaned corpus, which evaluation text was kept out of, for each language that has some.

    Empty without a ``section``. Raises UserError where no language has a pair.
    """
    if section is None:
        return []
    present = set(pair_names(corpus))
    found = []
    for language in languages:
        name = pair_name(SOURCE_LANGUAGE, language)
        if name in present:
            generator = keyed_generator("whitening", seed, language)
            long_enough = (pair for pair in read_pairs(corpus, name) if len(pair.source.split()) >= section.fewest_words)
            drawn = heapq.nsmallest(section.pairs_per_language, _numbered(long_enough, generator))
            if drawn:
                found.append(Translations(language, tuple(pair.source for _, _, pair in drawn), tuple(pair.target for _, _, pair in drawn)))
    if not found:
        raise UserError(
            f"evaluation.whitening needs pairs of English and {', '.join(languages)} with at least {section.fewest_words} English words, "
            "and the corpus has none; add pair corpora, or take it out.",
            file=corpus,
        )
    return found


def whitened(read: Read, translations: Sequence[Translations]) -> Read:
    """Return ``read`` followed by the whitening of what it makes of ``translations``; languages count alike."""
    covariances = []
    for pairs in translations:
        difference = (read(pairs.sources, SOURCE_LANGUAGE) - read(pairs.targets, pairs.language)).astype(np.float64)
        covariances.append(np.einsum("cni,cnj->cij", difference, difference) / (2.0 * difference.shape[1]))
    maps = np.stack([inverse_root(covariance) for covariance in np.mean(covariances, axis=0)])

    def read_whitened(texts: Sequence[str], language: str) -> Features:
        return np.asarray(np.matmul(read(texts, language), maps), dtype=np.float32)

    return read_whitened


def inverse_root(covariance: Matrix) -> Matrix:
    """Return C^-1/2 [features, features] of a covariance, its variances raised by `FLOOR_SHARE` of their mean.

    The identity where there is no variance at all.
    """
    if not np.any(covariance):
        return np.eye(len(covariance))
    variances, directions = np.linalg.eigh(covariance)
    raised = np.maximum(variances, 0.0) + FLOOR_SHARE * variances.mean()
    return np.asarray((directions * raised**-0.5) @ directions.T, dtype=np.float64)


def layer_name(layer: int) -> str:
    """Name a layer index as scores do: "final", or its number (0: embeddings)."""
    return "final" if layer == -1 else str(layer)


def pairs_drawn(translations: Sequence[Translations]) -> Mapping[str, int]:
    """Return how many pairs each language gave."""
    return {pairs.language: len(pairs.sources) for pairs in translations}


def _numbered(pairs: Iterator[SentencePair], generator: np.random.Generator) -> Iterator[tuple[float, int, SentencePair]]:
    for number, pair in enumerate(pairs):
        yield generator.random(), number, pair
