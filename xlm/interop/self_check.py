"""Whether an exported folder, loaded by transformers as a stranger would, says what our model says."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
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
INSTALL = 'pip install "transformers>=5.24,<6"'


@dataclass(frozen=True)
class CheckResult:
    """What was compared, in scores of all pieces (or of each token) at each token."""

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
def check_exported(model: ExportedModel, folder: Path, vocabulary: Vocabulary, languages: int) -> CheckResult:
    """Compare ids and scores on `TEXTS`; raises RuntimeError, which is a bug of the maps, where they differ."""
    transformers = transformers_module()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    theirs = getattr(transformers, model.architecture).from_pretrained(folder, local_files_only=True).eval()
    longest = model.config.max_positions
    sequences = [_with_a_mask(vocabulary, text, longest) for text in TEXTS]
    for text in TEXTS:
        expected = [vocabulary.bos_id, *vocabulary.encode(text).tolist(), vocabulary.eos_id]
        if tokenizer(text, verbose=False)["input_ids"] != expected:
            raise RuntimeError(f"{folder}: the tokenizer gives other ids for '{text}' than the vocabulary")
    ours = PretrainingModel(model.config, vocabulary.size, languages)
    ours.load_state_dict(dict(model.state), strict=True)
    ours.tie_weights()
    batch = tokenizer.pad({"input_ids": sequences}, return_tensors="pt")
    real = batch["attention_mask"].bool()
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    if model.config.language_embeddings:
        inputs["langs"] = torch.arange(len(sequences))[:, None].expand(real.shape).remainder(languages).contiguous()
    said = theirs(**inputs)
    found = said.logits if hasattr(said, "logits") else said.prediction_logits
    expected_scores = _our_scores(ours.eval(), sequences, inputs.get("langs", torch.zeros_like(batch["input_ids"]))[real])
    worst, largest = float((found[real] - expected_scores).abs().max()), float(expected_scores.abs().max())
    if not worst <= ALLOWED * max(largest, 1.0):
        raise RuntimeError(f"{folder}: scores differ by {worst:.1e} of {largest:.1f} from those of the model that was exported")
    return CheckResult(int(real.sum()), worst, largest)


def _with_a_mask(vocabulary: Vocabulary, text: str, longest: int) -> list[int]:
    ids = vocabulary.encode(text).tolist()[: longest - 2]
    if ids:
        ids[len(ids) // 2] = vocabulary.mask_id
    return [vocabulary.bos_id, *ids, vocabulary.eos_id]


def _our_scores(model: PretrainingModel, sequences: list[list[int]], language_ids: Tensor) -> Tensor:
    lengths = [len(sequence) for sequence in sequences]
    states = model.encoder(
        torch.tensor([piece for sequence in sequences for piece in sequence]),
        torch.cat([torch.arange(length) for length in lengths]),
        torch.tensor([0, *lengths]).cumsum(0).int(),
        language_ids=language_ids if model.config.language_embeddings else None,
    )
    head: Callable[[Tensor], Tensor] = model.logits if model.discriminator_head is None else model.discriminator_head
    return head(states)
