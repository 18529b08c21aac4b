"""Packed sequences of random pieces, and models with values that tell parts apart."""

import torch

from xlm.batching.packed_batch import OBJECTIVE_CODE, PackedBatch
from xlm.config.model import ModelConfig

VOCABULARY, LANGUAGES = 40, 3
LENGTHS = (1, 7, 12, 3, 12)
TOKENS = sum(LENGTHS)
# Large first values: with 0.02 an untrained block hardly changes what it is given.
SIZES = {"width": 16, "layers": 3, "heads": 2, "feed_forward": 24, "max_positions": 16, "initializer_range": 0.4}


def shape(**changes):
    return ModelConfig(**{**SIZES, **changes})


def perturb(module, seed=5):
    """Move every norm and bias from the ones and zeros with which it starts."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return module


def bounds(lengths=LENGTHS):
    return torch.tensor([0, *lengths]).cumsum(0).int()


def inputs(lengths=LENGTHS, seed=0):
    """Return what an encoder reads: ids, positions and boundaries."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "input_ids": torch.randint(5, VOCABULARY, (sum(lengths),), generator=generator),
        "position_ids": torch.cat([torch.arange(length) for length in lengths]) if lengths else torch.zeros(0, dtype=torch.int64),
        "cu_seqlens": bounds(lengths),
    }


def packed_batch(lengths=LENGTHS, predictions=6, objective="mlm", seed=0):
    """Return a batch of sequences of one objective, or of one objective each."""
    names = [objective] * len(lengths) if isinstance(objective, str) else objective
    generator = torch.Generator().manual_seed(seed)
    tokens, sequences = sum(lengths), len(lengths)
    unused = torch.full((sequences,), -1)
    return PackedBatch(
        **inputs(lengths, seed),
        token_type_ids=torch.randint(0, 2, (tokens,), generator=generator),
        language_ids=torch.randint(0, LANGUAGES, (tokens,), generator=generator),
        predict_positions=torch.randperm(tokens, generator=generator)[:predictions].sort().values,
        labels=torch.randint(5, VOCABULARY, (predictions,), generator=generator),
        prediction_objective=torch.zeros(predictions, dtype=torch.int64),
        sequence_objective=torch.tensor([OBJECTIVE_CODE[name] for name in names], dtype=torch.int64),
        pair_key=unused,
        pair_index=unused,
        sequence_label=unused,
        row_id=torch.zeros(sequences, dtype=torch.int64),
        **({"uniforms": torch.zeros(predictions)} if "uniforms" in PackedBatch.__dataclass_fields__ else {}),
    )
