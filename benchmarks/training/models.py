"""Both sides' models, with the same initial weights, and their loss of a micro-batch."""

from __future__ import annotations

import torch
import transformers
from torch import Tensor, nn
from training.cases import Case
from training.text import PAD, START, STOP, Padded
from transformers.initialization import no_init_weights

from xlm.batching.packed_batch import PackedBatch
from xlm.model.block import Block
from xlm.model.pretraining import PretrainingModel

# RoBERTa's position table starts behind the padding id: position 0 stands in row PAD + 1.
FIRST_POSITION = PAD + 1


def our_model(case: Case) -> PretrainingModel:
    """Build ours with the initial values of the case's seed."""
    model = PretrainingModel(case.model_config(), case.vocabulary, 0, seed=case.seed)
    # Transformers keeps the row of its padding at zero; the projection reads it, so ours has to agree.
    with torch.no_grad():
        model.encoder.embeddings.tokens.weight[PAD].zero_()
    model.adds_to_gradients = True  # as our engine has it without ZeRO in one process
    return model


def our_loss(case: Case, model: PretrainingModel, batch: PackedBatch, predictions: int) -> Tensor:
    """Return a micro-batch's part of the mean loss over the step's ``predictions``, as our trainer computes it.

    But for bf16, which is autocast over fp32 parameters on both sides, as transformers' Trainer has it: training with ZeRO keeps bf16
    parameters and fp32 master weights.
    """
    weights = torch.full((len(batch.labels),), 1.0 / predictions)
    with _autocast(case):
        return model.language_model_loss(batch, weights).total


def their_model(case: Case) -> transformers.XLMRobertaForMaskedLM:
    """Build transformers' XLM-R for masked language modelling with our initial values."""
    config = transformers.XLMRobertaConfig(
        vocab_size=case.vocabulary,
        hidden_size=case.width,
        num_hidden_layers=case.layers,
        num_attention_heads=case.heads,
        intermediate_size=4 * case.width,
        max_position_embeddings=case.row_tokens + FIRST_POSITION,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=STOP,
    )
    with no_init_weights():
        model = transformers.XLMRobertaForMaskedLM(config)
    model.tie_weights()
    copy_weights(our_model(case), model)
    return model


def their_loss(case: Case, model: transformers.XLMRobertaForMaskedLM, batch: Padded, predictions: int) -> Tensor:
    """Return the same as `run_mlm` has it computed: padded rows, logits at all positions, labels of -100.

    The model's loss is the mean of a micro-batch; it is weighed by its share of the predictions, so that both sides sum
    to the mean over the step.
    """
    with _autocast(case):
        mean: Tensor = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=batch.labels).loss
    return mean * (batch.predictions / predictions)


def _autocast(case: Case) -> torch.autocast:
    return torch.autocast("cpu", dtype=case.autocast_dtype, enabled=case.autocast_dtype is not None)


@torch.no_grad()
def copy_weights(ours: PretrainingModel, theirs: transformers.XLMRobertaForMaskedLM) -> None:
    """Give transformers' model the values of ours; raises ValueError where one of its parameters got none."""
    embeddings, encoder = theirs.roberta.embeddings, ours.encoder
    own = encoder.embeddings
    pairs: list[tuple[Tensor, Tensor]] = [
        (embeddings.word_embeddings.weight, own.tokens.weight),
        (embeddings.position_embeddings.weight[FIRST_POSITION:], own.positions.weight),
        (embeddings.token_type_embeddings.weight, own.token_types.weight),
        *_parameters(embeddings.LayerNorm, own.norm),
        *_parameters(theirs.lm_head.dense, ours.lm_head.dense),
        *_parameters(theirs.lm_head.layer_norm, ours.lm_head.norm),
        (theirs.lm_head.bias, ours.lm_head.bias),
    ]
    embeddings.position_embeddings.weight[:FIRST_POSITION].zero_()
    for layer, block in zip(theirs.roberta.encoder.layer, encoder.blocks, strict=True):
        pairs += _layer_parameters(layer, block)
    filled = set()
    for target, source in pairs:
        target.copy_(source)
        filled.add(target.untyped_storage().data_ptr())
    missed = [name for name, value in theirs.named_parameters() if value.untyped_storage().data_ptr() not in filled]
    if missed:
        raise ValueError(f"transformers' model has parameters that ours has not: {', '.join(missed)}")


def _layer_parameters(layer: nn.Module, block: Block) -> list[tuple[Tensor, Tensor]]:
    attention, fused = layer.attention.self, block.attention.qkv
    weights, biases = fused.weight.chunk(3), fused.bias.chunk(3)
    separate = (attention.query, attention.key, attention.value)
    return [
        *((part.weight, weight) for part, weight in zip(separate, weights, strict=True)),
        *((part.bias, bias) for part, bias in zip(separate, biases, strict=True)),
        *_parameters(layer.attention.output.dense, block.attention.output),
        *_parameters(layer.attention.output.LayerNorm, block.attention_norm),
        *_parameters(layer.intermediate.dense, block.feed_forward.inner),
        *_parameters(layer.output.dense, block.feed_forward.output),
        *_parameters(layer.output.LayerNorm, block.feed_forward_norm),
    ]


def _parameters(target: nn.Module, source: nn.Module) -> list[tuple[Tensor, Tensor]]:
    return [(target.weight, source.weight), (target.bias, source.bias)]
