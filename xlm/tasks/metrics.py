"""Scores of a task from what a system gave out: classification, tagging and nearest-neighbour retrieval.

Everything is a share between 0 and 1; reports turn it into percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

CHUNK_ROWS = 1024
MARGIN_NEIGHBOURS = 4

Floats = NDArray[np.float32] | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RetrievalScore:
    """Top-1 accuracy in each direction, and for each query whether its translation was found.

    ``forward_hits`` and ``backward_hits``: [N] bool, for bootstraps over the pairs.
    """

    forward: float
    backward: float
    forward_hits: NDArray[np.bool_]
    backward_hits: NDArray[np.bool_]

    @property
    def mean(self) -> float:
        """Mean of both directions."""
        return (self.forward + self.backward) / 2


def accuracy(references: ArrayLike, predictions: ArrayLike) -> float:
    """Return the share of predictions [N] that equal their reference [N]."""
    expected, found = _same_length(references, predictions)
    return float(np.mean(expected == found))


def macro_f1(references: ArrayLike, predictions: ArrayLike, labels: Sequence[str | int] | None = None) -> float:
    """Return the unweighted mean of F1 = 2TP / (2TP + FP + FN) over ``labels`` (0 where a label never occurs).

    Without ``labels`` the mean runs over every label that occurs in the references or the predictions,
    as scikit-learn's ``f1_score(average="macro")`` does.
    """
    expected, found = _same_length(references, predictions)
    classes = np.unique(np.concatenate([expected, found])) if labels is None else np.asarray(labels)
    scores = []
    for label in classes:
        true_positive = np.sum((expected == label) & (found == label))
        named = np.sum(expected == label) + np.sum(found == label)  # 2TP + FP + FN
        scores.append(2.0 * true_positive / named if named else 0.0)
    return float(np.mean(scores))


def entities(tags: Sequence[str], *, strict: bool = False) -> set[tuple[str, int, int]]:
    """Return the entities of one sentence's BIO tags as (name, first word, word after the last).

    As conlleval and seqeval have it: a ``B-`` begins an entity, and so does an ``I-`` after another name or after ``O``.
    With ``strict`` (seqeval's strict mode, IOB2) only a ``B-`` begins one; an ``I-`` that continues nothing is none.
    """
    found: set[tuple[str, int, int]] = set()
    name, start = "", 0
    for position, tag in enumerate([*tags, "O"]):
        kind, _, this = tag.partition("-")
        if kind == "I" and this == name:
            continue
        if name:
            found.add((name, start, position))
        begins = kind == "B" or (kind == "I" and not strict)
        name, start = (this, position) if begins else ("", 0)
    return found


def top1_retrieval(source: Floats, target: Floats, chunk_rows: int = CHUNK_ROWS) -> RetrievalScore:
    """Nearest neighbour by cosine, both directions; ``source`` and ``target`` are [N, D], row i of one translates row i of the other.

    The protocol of Tatoeba in XTREME (Hu et al. 2020), reported in both directions. Ties count as
    misses, so a collapsed encoder, to which all sentences are one, scores 0 and not by luck of order.
    """
    left, right = _unit_pairs(source, target)
    return _score(_hits(left, right, chunk_rows), _hits(right, left, chunk_rows))


def margin_retrieval(source: Floats, target: Floats, neighbours: int = MARGIN_NEIGHBOURS, chunk_rows: int = CHUNK_ROWS) -> RetrievalScore:
    """Nearest neighbour by the ratio margin, both directions; shapes as in `top1_retrieval`.

    margin(x, y) = cos(x, y) / ((mean_k(x) + mean_k(y)) / 2), where mean_k(x) is the mean cosine of x to
    its k nearest neighbours on the other side (Artetxe & Schwenk 2019), k = 4.
    """
    left, right = _unit_pairs(source, target)
    near_left = _mean_of_nearest(left, right, neighbours, chunk_rows)
    near_right = _mean_of_nearest(right, left, neighbours, chunk_rows)
    forward = _hits(left, right, chunk_rows, near_left, near_right)
    backward = _hits(right, left, chunk_rows, near_right, near_left)
    return _score(forward, backward)


def _same_length(references: ArrayLike, predictions: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    expected, found = np.asarray(references), np.asarray(predictions)
    if expected.shape != found.shape or expected.ndim != 1 or not expected.size:
        raise ValueError(f"references {expected.shape} and predictions {found.shape} must be two non-empty lists of one length")
    return expected, found


def _unit_pairs(source: Floats, target: Floats) -> tuple[Floats, Floats]:
    if source.shape != target.shape or source.ndim != 2 or not source.size:
        raise ValueError(f"source {source.shape} and target {target.shape} must be two non-empty matrices of one shape [N, D]")
    return _unit_rows(source), _unit_rows(target)


def _unit_rows(matrix: Floats) -> Floats:
    precise = np.asarray(matrix, dtype=np.float64 if matrix.dtype == np.float64 else np.float32)
    if not np.isfinite(precise).all():
        raise ValueError("an embedding is not finite (NaN or infinity)")
    norms = np.linalg.norm(precise, axis=1, keepdims=True)
    # A zero vector stays zero: its cosine with anything is 0.
    units: Floats = precise / np.where(norms > 0, norms, 1.0)
    return units


def _hits(
    queries: Floats,
    candidates: Floats,
    chunk_rows: int,
    near_queries: Floats | None = None,
    near_candidates: Floats | None = None,
) -> NDArray[np.bool_]:
    """Return for each query [N] whether its own candidate scores strictly above all others."""
    hits = np.zeros(len(queries), dtype=np.bool_)
    for start in range(0, len(queries), chunk_rows):
        stop = min(start + chunk_rows, len(queries))
        scores = queries[start:stop] @ candidates.T  # [chunk, N]
        if near_queries is not None and near_candidates is not None:
            scores = scores / ((near_queries[start:stop, None] + near_candidates[None, :]) / 2)
        rows = np.arange(stop - start)
        own = scores[rows, rows + start].copy()
        scores[rows, rows + start] = -np.inf
        hits[start:stop] = own > scores.max(axis=1)
    return hits


def _mean_of_nearest(queries: Floats, candidates: Floats, neighbours: int, chunk_rows: int) -> Floats:
    """Return the mean cosine [N] of each query to its nearest candidates."""
    neighbours = min(neighbours, len(candidates))
    means = np.zeros(len(queries), dtype=queries.dtype)
    for start in range(0, len(queries), chunk_rows):
        scores = queries[start : start + chunk_rows] @ candidates.T
        nearest = np.partition(scores, -neighbours, axis=1)[:, -neighbours:]
        means[start : start + chunk_rows] = nearest.mean(axis=1)
    return means


def _score(forward: NDArray[np.bool_], backward: NDArray[np.bool_]) -> RetrievalScore:
    return RetrievalScore(float(forward.mean()), float(backward.mean()), forward, backward)
