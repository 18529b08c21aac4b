"""Training a vocabulary with SentencePiece, so that the same text gives the same pieces.

Three settings make it repeatable: our own sample instead of SentencePiece's, no shuffling, and a fixed
number of threads. The lines are given as an iterator, so no path enters the model.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import sentencepiece

from xlm.errors import UserError
from xlm.vocab.parts import with_exact_scores
from xlm.vocab.sampling import MAX_LINE_BYTES
from xlm.vocab.spec import SPECIAL_PIECES, VocabularySpec
from xlm.vocab.vocabulary import Vocabulary

_ERRORS_ONLY = 2  # SentencePiece's log level


def train_vocabulary(lines: Sequence[str], spec: VocabularySpec) -> Vocabulary:
    """Train on ``lines``, in their order; the vocabulary may come out smaller than ``spec.size`` on little text.

    Raises UserError when there is no text, or when the size cannot even hold the characters to be covered.
    """
    if not lines:
        raise UserError("there is no text to train a vocabulary on.")
    pad, unk, bos, eos, mask = SPECIAL_PIECES
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=spec.size,
            # Text that cannot fill the vocabulary gives a smaller one instead of an error.
            hard_vocab_limit=False,
            model_type=spec.model_type,
            normalization_rule_name=spec.normalisation_rule,
            byte_fallback=spec.byte_fallback,
            character_coverage=spec.character_coverage,
            split_digits=spec.split_digits,
            max_sentencepiece_length=spec.max_piece_characters,
            max_sentence_length=MAX_LINE_BYTES,
            num_threads=spec.threads,
            input_sentence_size=0,
            shuffle_input_sentence=False,
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            pad_piece=pad,
            unk_piece=unk,
            bos_piece=bos,
            eos_piece=eos,
            control_symbols=[mask],
            minloglevel=_ERRORS_ONLY,
        )
    except RuntimeError as error:
        raise _explained(error, spec) from None
    # Ties between segmentations are then ties everywhere, and other libraries give the same ids.
    return Vocabulary(with_exact_scores(model.getvalue()))


def _explained(error: RuntimeError, spec: VocabularySpec) -> UserError:
    reason = " ".join(str(error).split())
    needed = re.search(r"required_chars\. (\d+) vs (\d+)", reason)
    if needed:
        return UserError(
            f"a vocabulary of {spec.size:,} pieces cannot hold every character of this text, which takes {int(needed[2]):,}; "
            "raise size or lower character_coverage in the vocabulary spec."
        )
    return UserError(f"SentencePiece could not train on this text: {reason}")
