"""The pretraining model: losses at predicted positions, ties, tables, empty micro-batches."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file

from tests.model.packed import LANGUAGES, LENGTHS, VOCABULARY, packed_batch, perturb, shape
from xlm.batching.packed_batch import PackedBatch
from xlm.errors import UserError
from xlm.model import vocabulary_memory
from xlm.model.pretraining import PretrainingModel


def build(**changes):
    model = PretrainingModel(shape(**changes), VOCABULARY, LANGUAGES)
    model.initialise(seed=1)
    return perturb(model)


def changed(batch, **fields):
    return PackedBatch(**{**{name: getattr(batch, name) for name in PackedBatch.__dataclass_fields__}, **fields})


def states_of(model, batch, **options):
    return model.encode(batch, model.token_tables(), **options)


HEADS = {
    "tied": {},
    "free": {"tied_output": False},
    "bare": {"head_transform": False, "output_bias": False},
    "factorised": {"embedding_width": 8},
    "wider than its base": {"width_scaling": {"base_width": 4, "base_heads": 2}},
}


@pytest.mark.parametrize("kind", HEADS)
def test_losses_and_gradients_are_those_of_the_cross_entropy_of_all_logits(kind):
    model = build(**HEADS[kind])
    batch = packed_batch(LENGTHS, 9)
    weights = torch.rand(9, generator=torch.Generator().manual_seed(2))
    parameters = list(model.parameters())
    ours = model.language_model_loss(batch, weights)
    # The same from every state and from tables that nobody shares.
    plain = model.encoder(batch.input_ids, batch.position_ids, batch.cu_seqlens)
    losses = F.cross_entropy(model.logits(plain)[batch.predict_positions], batch.labels, reduction="none")
    torch.testing.assert_close(ours.losses, losses.detach(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.total, (losses * weights).sum(), atol=1e-5, rtol=1e-5)
    gradients = [torch.autograd.grad(loss, parameters, materialize_grads=True) for loss in (ours.total, (losses * weights).sum())]
    for mine, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-4)
    assert (model.output_table is model.encoder.embeddings.tokens.weight) == (kind != "free")


@pytest.mark.parametrize("tied", [True, False])
def test_micro_batches_that_add_to_the_gradient_in_place_end_with_the_same_sum(tied, monkeypatch):
    monkeypatch.setattr(vocabulary_memory, "MIN_WITHOUT_LENDER", 1)
    sums = []
    for in_place in (False, True):
        model = build(tied_output=tied)
        model.adds_to_gradients = in_place
        for predictions in (9, 4, 6):
            first = model.encoder.embeddings.tokens.weight.grad
            model.language_model_loss(packed_batch(LENGTHS, predictions), torch.ones(predictions)).total.backward()
            assert first is None or model.encoder.embeddings.tokens.weight.grad is first
        sums.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*sums, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lengths", [(), (4, 6)])
def test_a_batch_without_predictions_has_no_losses_and_a_gradient_all_the_same(lengths):
    model = build()
    found = model.language_model_loss(packed_batch(lengths, 0), torch.zeros(0))
    assert found.losses.shape == (0,)
    assert float(found.total.detach()) == 0.0
    found.total.backward()
    assert all(bool(torch.isfinite(parameter.grad).all()) for parameter in model.parameters() if parameter.grad is not None)


@pytest.mark.parametrize(("field", "option"), [("language_ids", {"language_embeddings": True}), ("token_type_ids", {"token_types": 2})])
def test_ids_reach_a_model_that_has_a_table_for_them_and_no_other(field, option):
    batch = packed_batch()
    other = changed(batch, **{field: 1 - getattr(batch, field).clamp(max=1)})
    with_table, without = build(**option), build()
    assert not torch.equal(states_of(with_table, batch), states_of(with_table, other))
    assert torch.equal(states_of(without, batch), states_of(without, other))


def test_a_language_that_the_model_lacks_is_a_sentence():
    model = build(language_embeddings=True)
    batch = packed_batch()
    with pytest.raises(UserError, match="language id 5, but this model's go from 0 to 2"):
        states_of(model, changed(batch, language_ids=batch.language_ids + LANGUAGES))


def test_sequences_of_clm_are_causal_and_their_neighbours_are_not():
    model = build()
    batch = packed_batch((6, 6), 0, objective=("clm", "mlm"))
    last = batch.input_ids.clone()
    last[5] = last[11] = (last[5] + 1) % VOCABULARY
    moved = (states_of(model, batch) - states_of(model, batch, input_ids=last)).abs().amax(-1) > 0
    assert moved.tolist() == [False] * 5 + [True] + [True] * 6


def test_replaced_pieces_stand_for_the_batchs_own():
    model, batch = build(), packed_batch()
    replaced = (batch.input_ids + 1) % VOCABULARY
    torch.testing.assert_close(states_of(model, batch, input_ids=replaced), states_of(model, changed(batch, input_ids=replaced)))


def test_initial_values_depend_on_the_seed_alone():
    models = [PretrainingModel(shape(), VOCABULARY, 2) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        model.initialise(seed)
    for (name, mine), again, else_ in zip(models[0].named_parameters(), models[1].parameters(), models[2].parameters(), strict=True):
        assert torch.equal(mine, again), name
        assert mine.dim() == 1 or not torch.equal(mine, else_), name


def test_tied_weights_are_saved_once_and_load_back(tmp_path):
    model, again = build(), build()
    again.initialise(seed=7)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    again.tie_weights()
    batch, weights = packed_batch(), torch.ones(6)
    assert torch.equal(model.language_model_loss(batch, weights).losses, again.language_model_loss(batch, weights).losses)
    again.lm_head.register_parameter("weight", torch.nn.Parameter(torch.zeros(VOCABULARY, 16)))
    again.tie_weights()
    assert again.output_table is again.encoder.embeddings.tokens.weight


def test_a_model_without_a_language_model_head_says_so():
    model = build(language_model_head=False, discriminator_head=True)
    with pytest.raises(UserError, match=r"set model\.language_model_head to true"):
        model.logits(torch.zeros(1, 16))


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


def test_names_of_heads_are_those_of_saved_models():
    generator = {"width": 8, "layers": 1, "heads": 1, "feed_forward": 8}
    model = build(sentence_head=True, discriminator_head=True, generator=generator)
    names = {name for name in model.state_dict() if not name.startswith(("encoder.", "generator."))}
    heads = ("lm_head.dense", "lm_head.norm", "sentence_head.pooler", "sentence_head.classifier", "discriminator_head.dense")
    expected = {f"{part}.{kind}" for part in (*heads, "discriminator_head.score") for kind in ("weight", "bias")}
    assert names == expected | {"lm_head.bias"}
    assert set(build(tied_output=False).state_dict()) - set(build().state_dict()) == {"lm_head.weight"}


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_it_learns(norm_position):
    model = PretrainingModel(shape(norm_position=norm_position, initializer_range=0.05), VOCABULARY, 0)
    batch = packed_batch((8, 8, 8), 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(40):
        loss = model.language_model_loss(batch, torch.full((8,), 1 / 8)).total
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.2 * losses[0]
