"""From texts to rows of an objective: arranged, laid out, and masked or given labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xlm.batching.arrangement import Arrangement, Sequences, lay_out
from xlm.batching.clm import next_pieces
from xlm.batching.contrastive import separate_pairs
from xlm.batching.keyed_words import Words
from xlm.batching.masking import Masked, Masker
from xlm.batching.packed_rows import NO_IDS, Ids, PackedRows, PieceIds, sums_by_row
from xlm.batching.running_text import documents, full_sentences
from xlm.batching.sentence_pairs import next_sentence, sentence_order
from xlm.batching.texts import RowTexts
from xlm.batching.tlm import pairs_in_one_sequence
from xlm.config.phases import MaskingSection, Objective, ObjectiveShare


class RowMaker:
    """Makes rows of any objective under one masking section."""

    def __init__(
        self, pieces: PieceIds, masking: MaskingSection, spaced: NDArray[np.bool_], piece_counts: NDArray[np.uint64] | None = None
    ) -> None:
        """``spaced`` says of each language id whether its words are written apart; ``piece_counts`` is [vocabulary]."""
        self._pieces = pieces
        self._masker = Masker(pieces, masking, piece_counts)
        # Selections of single pieces need not know where words begin.
        self._spaced = spaced if masking.selection in ("whole_word", "span") else None

    def arrange(self, objective: Objective, options: ObjectiveShare, texts: RowTexts, seeds: Words) -> Arrangement:
        """Return how the texts of rows of an objective stand in sequences; ``seeds`` are the rows', [R]."""
        if objective == "contrastive":
            return separate_pairs(texts, seeds, options.mixup, self._pieces)
        if objective == "tlm":
            return pairs_in_one_sequence(texts, seeds, options.form, self._pieces)
        if objective == "nsp":
            return next_sentence(texts, self._pieces)
        if objective == "sop":
            return sentence_order(texts, seeds, self._pieces)
        return full_sentences(texts, self._pieces) if options.rows == "full_sentences" else documents(texts, self._pieces)

    def make(
        self,
        objective: Objective,
        arrangement: Arrangement,
        texts: RowTexts,
        seeds: Words,
        mask_rate: float,
        pair_keys: Ids | None = None,
    ) -> PackedRows:
        """Lay rows out and draw their predictions; ``pair_keys`` [S] come with contrastive rows."""
        sequences = lay_out(arrangement, texts, eos_id=self._pieces.eos_id)
        predicted = self._predict(objective, sequences, arrangement, seeds, mask_rate)
        absent = np.full_like(sequences.lengths, -1)
        return PackedRows(
            objective=objective,
            input_ids=predicted.input_ids,
            position_ids=sequences.positions,
            token_type_ids=sequences.token_types,
            language_ids=sequences.languages,
            sequence_lengths=sequences.lengths,
            sequences_per_row=arrangement.sequences_per_row,
            predict_positions=predicted.positions,
            labels=predicted.labels,
            pair_keys=absent if pair_keys is None else pair_keys,
            sequence_labels=absent if arrangement.sequence_labels is None else arrangement.sequence_labels,
            uniforms=predicted.uniforms,
        )

    def _predict(self, objective: Objective, sequences: Sequences, arrangement: Arrangement, seeds: Words, mask_rate: float) -> Masked:
        if objective == "contrastive":
            return Masked(sequences.ids, NO_IDS, NO_IDS)
        if objective == "clm":
            return Masked(sequences.ids, *next_pieces(sequences))
        return self._masker.mask(
            sequences.ids,
            sums_by_row(sequences.lengths, arrangement.sequences_per_row),
            mask_rate,
            seeds,
            spaced=None if self._spaced is None else self._spaced[sequences.languages],
            rtd=objective == "rtd",
        )
