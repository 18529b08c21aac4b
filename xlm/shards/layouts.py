"""Row layouts: what a row plan puts together, and how many special pieces that costs.

A row plan is built for a layout, not for an objective: MLM, CLM and RTD draw from one plan of documents,
each in an order of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from xlm.config.phases import Objective, ObjectiveShare
from xlm.shards.format import Kind

Layout = Literal["documents", "full_sentences", "pairs", "pairs_xlm", "separate_pairs", "next_sentence", "sentence_order"]


@dataclass(frozen=True, slots=True)
class LayoutRule:
    """A unit is what is packed as a whole: ``segments_per_unit`` segments of the row plan (None: all of a row).

    A segment is a piece of a document or a whole pair. A unit costs ``per_unit`` special pieces and
    ``per_segment`` for each of its segments, beside its tokens.
    """

    kind: Kind
    per_unit: int
    per_segment: int = 0
    segments_per_unit: int | None = 1


RULES: Mapping[Layout, LayoutRule] = {
    # <s> text </s>
    "documents": LayoutRule("monolingual", 2),
    # <s> text </s> text </s> ..., one sequence a row (RoBERTa's FULL-SENTENCES: a separator between documents)
    "full_sentences": LayoutRule("monolingual", 1, per_segment=1, segments_per_unit=None),
    # <s> source </s> target </s>
    "pairs": LayoutRule("pair", 3),
    # </s> source </s> </s> target </s>
    "pairs_xlm": LayoutRule("pair", 4),
    # <s> source </s> and <s> target </s>: two sequences
    "separate_pairs": LayoutRule("pair", 4),
    # <s> A </s> B </s>, B the continuation of A or a piece of another document, as the plan says
    "next_sentence": LayoutRule("monolingual", 3, segments_per_unit=2),
    # <s> A </s> B </s>, B the continuation of A; which comes first is drawn when the row is laid out
    "sentence_order": LayoutRule("monolingual", 3, segments_per_unit=2),
}


def layout_of(objective: Objective, options: ObjectiveShare) -> Layout:
    """Return the layout whose row plans an objective draws from."""
    if objective == "tlm":
        return "pairs_xlm" if options.form == "xlm" else "pairs"
    fixed: Mapping[Objective, Layout] = {"contrastive": "separate_pairs", "nsp": "next_sentence", "sop": "sentence_order"}
    return fixed.get(objective, options.rows)
