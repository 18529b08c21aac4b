"""What a vocabulary is made from, declared in one YAML file (`vocab/*.yaml`).

Case folding is a field because it belongs to the vocabulary and nothing else: SentencePiece carries its
normaliser inside the model, so text is folded the same way at training, at evaluation and after export,
and no caller can forget it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from xlm.config.strict import StrictModel

# Five special pieces and, with byte fallback, 256 bytes come before the first learned piece.
SPECIAL_PIECES: tuple[str, ...] = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
BYTE_PIECES = 256


class VocabularySpec(StrictModel):
    """Everything that decides which pieces a vocabulary has; sizes in pieces and characters."""

    size: Annotated[int, Field(ge=16, le=4_000_000)]
    model_type: Literal["unigram", "bpe"] = "unigram"
    case_fold: bool = False
    # `nmt_nfkc` also turns ZERO WIDTH NON-JOINER into a space, which breaks Persian words; `nfkc` keeps it.
    normaliser: Literal["nfkc", "nmt_nfkc", "identity"] = "nfkc"
    byte_fallback: bool = True
    character_coverage: Annotated[float, Field(gt=0.9, le=1.0)] = 0.9995
    split_digits: bool = False
    max_piece_characters: Annotated[int, Field(ge=1, le=512)] = 16
    # q_l = p_l^alpha / sum p^alpha over characters (XLM-R: 0.3); 0 is uniform, 1 is as found.
    sampling_alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.3
    max_characters: Annotated[int, Field(ge=1_000)] = 200_000_000
    seed: Annotated[int, Field(ge=0)] = 0
    # The unigram trainer gives other pieces with another number of threads, so it is part of the spec.
    threads: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _fits_together(self) -> VocabularySpec:
        if self.case_fold and self.normaliser == "identity":
            raise ValueError("case_fold needs the normaliser nfkc or nmt_nfkc; identity changes nothing, so it cannot fold")
        reserved = len(SPECIAL_PIECES) + (BYTE_PIECES if self.byte_fallback else 0)
        if self.size <= reserved:
            raise ValueError(f"size {self.size} leaves no room for learned pieces: {reserved} are special or bytes; raise size")
        return self

    @property
    def normalisation_rule(self) -> str:
        """SentencePiece's name of the normaliser; ``_cf`` is its case-folding variant."""
        return f"{self.normaliser}_cf" if self.case_fold else self.normaliser
