"""Rows of full sentences: one sequence a row, filled with the next sentences, from one document into the next.

RoBERTa's FULL-SENTENCES (Liu et al. 2019, section 4.2): sentences are laid one after the other while whole
sentences fit; where a row crosses into another document a separator stands between the two.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from xlm.shards.cutting import Spans
from xlm.shards.layouts import RULES
from xlm.shards.row_plan import RowPlan, Segments


def full_sentence_rows(sentences: Spans, length: int, generator: np.random.Generator) -> RowPlan:
    """Lay sentences out in rows of ``length`` positions, documents in the generator's order.

    ``sentences`` are sorted by document, each fits a row alone. Consecutive sentences of a document are one
    segment of a row.
    """
    rule = RULES["full_sentences"]
    documents = generator.permutation(int(sentences.item.max(initial=-1)) + 1)
    rank = np.empty_like(documents)
    rank[documents] = np.arange(len(documents))
    sentences = sentences.take(np.argsort(rank[sentences.item], kind="stable"))
    begins_document = np.diff(sentences.item, prepend=-1) != 0
    # Position i: what the sentences before i cost, with a separator for each document begun there.
    costs = [0, *np.cumsum(sentences.lengths + rule.per_segment * begins_document).tolist()]
    continues = (~begins_document).tolist()
    firsts = [0]
    while firsts[-1] < len(sentences):
        first = firsts[-1]
        # A row that begins inside a document needs a separator for the rest of it.
        room = length - rule.per_unit - rule.per_segment * continues[first]
        firsts.append(bisect_right(costs, costs[first] + room) - 1)
    begins_row = np.zeros(len(sentences), dtype=bool)
    begins_row[firsts[:-1]] = True
    begins = np.flatnonzero(begins_row | begins_document)
    ends = np.append(begins, len(sentences))[1:] - 1
    segments = Segments(*(column.astype(np.uint32) for column in (sentences.item[begins], sentences.start[begins], sentences.end[ends])))
    offsets = np.searchsorted(begins, np.array(firsts, dtype=np.int64))
    return RowPlan(offsets.astype(np.int64), segments)
