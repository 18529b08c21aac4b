"""The pretraining model: losses at predicted positions, ties, empty micro-batches."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file

from xlm.batching.packed_batch import PackedBatch
from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.model.pretraining import PretrainingModel

CONFIG = ModelConfig(width=16, layers=2, heads=2, feed_forward=32, max_positions=16, embedding_scale=4.0)
VOCABULARY = 40


def packed(lengths, predictions):
    generator = torch.Generator().manual_seed(0)
    tokens = sum(lengths)
    sequences = len(lengths)
    unused = torch.full((sequences,), -1)
    return PackedBatch(
        input_ids=torch.randint(5, VOCABULARY, (tokens,), generator=generator),
        position_ids=torch.cat([torch.arange(length) for length in lengths]) if lengths else torch.zeros(0, dtype=torch.int64),
        token_type_ids=torch.zeros(tokens, dtype=torch.int64),
        language_ids=torch.zeros(tokens, dtype=torch.int64),
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).int(),
        predict_positions=torch.randperm(tokens, generator=generator)[:predictions].sort().values,
        labels=torch.randint(5, VOCABULARY, (predictions,), generator=generator),
        prediction_objective=torch.zeros(predictions, dtype=torch.int64),
        sequence_objective=torch.zeros(sequences, dtype=torch.int64),
        pair_key=unused,
        pair_index=unused,
        sequence_label=unused,
        row_id=torch.zeros(sequences, dtype=torch.int64),
    )


def build(**changes):
    model = PretrainingModel(CONFIG.model_copy(update=changes), VOCABULARY, 2)
    model.initialise(seed=1)
    return model


@pytest.mark.parametrize("tied", [True, False])
def test_losses_are_the_cross_entropy_of_the_logits(tied):
    model = build(tied_output=tied)
    batch = packed([5, 9, 3], 6)
    hidden, losses = model(batch)
    logits = model.logits(hidden)[batch.predict_positions]
    torch.testing.assert_close(losses, F.cross_entropy(logits, batch.labels, reduction="none"), atol=1e-5, rtol=1e-5)
    assert (model.output_table is model.encoder.embeddings.tokens.weight) == tied


@pytest.mark.parametrize("lengths", [[], [4, 6]])
def test_a_batch_without_predictions_has_no_losses_and_a_gradient_all_the_same(lengths):
    model = build()
    hidden, losses = model(packed(lengths, 0))
    assert losses.shape == (0,)
    (losses.sum() + hidden.sum()).backward()
    assert all(bool(torch.isfinite(parameter.grad).all()) for parameter in model.parameters() if parameter.grad is not None)


def test_language_ids_reach_a_model_that_has_languages():
    model = build(language_embeddings=True)
    batch = packed([6], 0)
    changed = PackedBatch(**{**vars(batch), "language_ids": batch.language_ids + 1})
    assert not torch.equal(model.hidden(batch), model.hidden(changed))
    assert torch.equal(build().hidden(batch), build().hidden(changed))


def test_initial_values_depend_on_the_seed_alone():
    same, other = build(), build()
    other.initialise(seed=2)
    for (name, mine), again, else_ in zip(build().named_parameters(), same.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, again), name
        assert mine.dim() == 1 or not torch.equal(mine, else_), name


def test_tied_weights_are_saved_once_and_load_back(tmp_path):
    model = build()
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    again = PretrainingModel(CONFIG, VOCABULARY, 2)
    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    again.tie_weights()
    batch = packed([5, 4], 4)
    assert torch.equal(model(batch)[1], again(batch)[1])
    again.lm_head.register_parameter("weight", torch.nn.Parameter(torch.zeros(VOCABULARY, 16)))
    again.tie_weights()
    assert again.output_table is again.encoder.embeddings.tokens.weight


def test_token_embeddings_are_checked_before_they_are_loaded():
    model = build()
    table = torch.randn(VOCABULARY, 16, generator=torch.Generator().manual_seed(0))
    model.load_token_embeddings(table)
    assert torch.equal(model.encoder.embeddings.tokens.weight, table)
    with pytest.raises(UserError, match=r"\(40, 8\).*\(40, 16\)"):
        model.load_token_embeddings(table[:, :8])
    table[3, 3] = float("nan")
    with pytest.raises(UserError, match="NaN"):
        model.load_token_embeddings(table)


def test_it_learns():
    model = build()
    batch = packed([8, 8, 8], 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = None
    for _ in range(30):
        loss = model(batch)[1].mean()
        first = first or float(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss) < 0.2 * first
