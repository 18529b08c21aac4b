"""Whether an exported folder, loaded by transformers as a stranger would, says what our model says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from xlm.errors import UserError
from xlm.interop.exported import ExportedModel
from xlm.model.pretraining import PretrainingModel
from xlm.vocab.vocabulary import Vocabulary

# Articles 1 of the Universal Declaration of Human Rights: scripts with and without spaces, right to left, marks.
TEXTS = (
    "All human beings are born free and equal in dignity and rights.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "人人生而自由，在尊严和权利上一律平等。",
    "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.",
    "a",
)
ALLOWED = 1e-4  # of the largest score; exact maps differ by the order of sums, some 1e-6
TOKENS, SENTENCES = "tokens", "sentences"  # what a head scores
INSTALL = "pip install '.[hf]'"


@dataclass(frozen=True)
class CheckResult:
    """What was compared: scores of all pieces (or one) at each token, and two of each sentence where there is a head for them."""

    tokens: int
    worst: float
    largest: float


def transformers_module() -> Any:  # noqa: ANN401 (untyped library)
    """Import transformers, told to stay off the network; raises UserError, with the command, where it is not installed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import transformers
    except ImportError:
        raise UserError(f"transformers is not installed, so what was written cannot be compared; run: {INSTALL}.") from None
    transformers.utils.logging.disable_progress_bar()
    return transformers


@torch.no_grad()
def check_exported(exported: ExportedModel, folder: Path, vocabulary: Vocabulary, trained: PretrainingModel) -> CheckResult:
    """Compare ids, and scores of every head, on `TEXTS` with the model as it was trained; raises RuntimeError where they differ.

    That is a bug of the maps: a user has nothing to put right.
    """
    transformers = transformers_module()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    theirs = getattr(transformers, exported.architecture).from_pretrained(folder, local_files_only=True).eval()
    for text in TEXTS:
        expected = [vocabulary.bos_id, *vocabulary.encode(text).tolist(), vocabulary.eos_id]
        if tokenizer(text, verbose=False)["input_ids"] != expected:
            raise RuntimeError(f"{folder}: the tokenizer gives other ids for '{text}' than the vocabulary")
    sequences = [_with_a_mask(vocabulary, text, trained.config.max_positions) for text in TEXTS]
    padded = tokenizer.pad({"input_ids": sequences}, return_tensors="pt")
    real = padded["attention_mask"].bool()
    inputs = {"input_ids": padded["input_ids"], "attention_mask": padded["attention_mask"], **_other_inputs(trained, real)}
    expected_scores = _our_scores(trained.eval(), exported.part, inputs, real)
    found = _their_scores(theirs(**inputs), real)
    worst = largest = 0.0
    for head, scores in expected_scores.items():
        if head not in found:
            raise RuntimeError(f"{folder}: {exported.architecture} gives no scores of {head}, and the model that was exported does")
        difference, size = float((found[head] - scores).abs().max()), float(scores.abs().max())
        if not difference <= ALLOWED * max(size, 1.0):
            raise RuntimeError(
                f"{folder}: scores of {head} differ by {difference:.1e} of {size:.1f} from those of the model that was exported"
            )
        worst, largest = max(worst, difference), max(largest, size)
    return CheckResult(int(real.sum()), worst, largest)


def _with_a_mask(vocabulary: Vocabulary, text: str, longest: int) -> list[int]:
    ids = vocabulary.encode(text).tolist()[: longest - 2]
    if ids:
        ids[len(ids) // 2] = vocabulary.mask_id
    return [vocabulary.bos_id, *ids, vocabulary.eos_id]


def _other_inputs(model: PretrainingModel, real: Tensor) -> dict[str, Tensor]:
    """Return what the model reads beside pieces, each [S, longest]: every language in turn, both token types."""
    rows, places = real.shape
    inputs = {}
    languages = model.encoder.embeddings.languages
    if languages is not None:
        inputs["langs"] = torch.arange(rows)[:, None].expand(real.shape).remainder(languages.weight.shape[0]).contiguous()
    if model.config.token_types:
        second = torch.arange(places)[None, :] >= real.sum(dim=1, keepdim=True) // 2
        inputs["token_type_ids"] = second.long() * (model.config.token_types - 1)
    return inputs


def _our_scores(model: PretrainingModel, part: str, inputs: Mapping[str, Tensor], real: Tensor) -> dict[str, Tensor]:
    """Return the scores of each head of a part at all real tokens, or of a sentence at its first."""
    read = {name: tensor[real] for name, tensor in inputs.items()}
    lengths = real.sum(dim=1)
    boundaries = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    positions = torch.cat([torch.arange(length) for length in lengths.tolist()])
    types, languages = read.get("token_type_ids"), read.get("langs")
    if part == "generator" and model.generator is not None:
        embedded = model.encoder.embeddings(read["input_ids"], positions, types, languages)
        hidden = model.generator(embedded, positions, boundaries.int(), torch.arange(len(positions)))
        return {TOKENS: F.linear(hidden, model.encoder.embeddings.tokens.weight, model.generator.lm_head.bias)}
    states = model.encoder(read["input_ids"], positions, boundaries.int(), token_type_ids=types, language_ids=languages)
    scores = {TOKENS: model.logits(states) if model.discriminator_head is None else model.discriminator_head(states)}
    if model.sentence_head is not None:
        scores[SENTENCES] = model.sentence_head(states[boundaries[:-1]])
    return scores


def _their_scores(said: Any, real: Tensor) -> dict[str, Tensor]:  # noqa: ANN401 (untyped library)
    """Return the scores of each head that their model has, by the names that transformers gives them."""
    names = {"logits": TOKENS, "prediction_logits": TOKENS, "seq_relationship_logits": SENTENCES, "sop_logits": SENTENCES}
    found = {head: getattr(said, name) for name, head in names.items() if getattr(said, name, None) is not None}
    return {head: scores[real] if head == TOKENS else scores for head, scores in found.items()}
