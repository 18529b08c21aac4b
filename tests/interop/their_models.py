"""Randomly initialised models of transformers beside ours with the same weights: nothing is downloaded."""

from dataclasses import dataclass

import torch

from xlm.batching.packed_batch import PackedBatch
from xlm.interop.config_map import Described, read_config
from xlm.interop.weight_map import export_weights, import_weights
from xlm.model.pretraining import PretrainingModel

LENGTHS = (7, 1, 13, 12, 2, 9)
BASE_SCALE = 0.02
LOGIT_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
SIZES = {"vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40}


@dataclass
class Twins:
    """Their model and ours, with the same weights."""

    theirs: torch.nn.Module
    ours: PretrainingModel
    described: Described
    json: dict
    extras: dict

    @property
    def languages(self):
        return len(self.described.facts.languages)


def perturb(model, seed=0, *, scale=0.1, keep=()):
    """Give every parameter a value of its own: norms begin as ones and biases as zeros, and would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name not in keep:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)


def twins(model_class, config, *, scale=0.1, keep=(), **json):
    """Build their model and ours; ``json`` stands over what their configuration says.

    Matrices of hundreds of columns want a smaller ``scale``: rounding grows with what a model computes.
    """
    config._attn_implementation = "eager"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = model_class(config).eval()
    perturb(theirs, scale=scale, keep=keep)
    written = {**theirs.config.to_dict(), "architectures": [model_class.__name__], **json}
    described = read_config(written)
    state, extras = import_weights(described, written, theirs.state_dict())
    ours = PretrainingModel(described.config, described.facts.vocabulary_size, len(described.facts.languages))
    ours.load_state_dict(state, strict=True)
    ours.tie_weights()
    return Twins(theirs, ours.eval(), described, written, extras)


@dataclass
class Padded:
    """The same sequences, padded for them and packed for us."""

    input_ids: torch.Tensor  # [S, longest]
    attention_mask: torch.Tensor
    token_type_ids: torch.Tensor
    language_ids: torch.Tensor
    packed: PackedBatch

    @property
    def real(self):
        return self.attention_mask.bool()


def sequences(vocabulary, pad, lengths=LENGTHS, *, types=1, languages=1, seed=1):
    """Draw sequences without the padding piece; the second half of each has the last type."""
    generator = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    ids = torch.randint(0, vocabulary, (len(lengths), longest), generator=generator)
    ids[ids == pad] = (pad or 0) + 1
    mask = torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
    ids[~mask] = pad or 0
    halves = (torch.arange(longest)[None, :] >= torch.tensor(lengths)[:, None] // 2).long() * (types - 1)
    tongues = torch.randint(0, languages, (len(lengths), longest), generator=generator)
    predicted = torch.cat([torch.arange(0, length, 3) + sum(lengths[:n]) for n, length in enumerate(lengths)])
    unused = torch.full((len(lengths),), -1)
    packed = PackedBatch(
        input_ids=ids[mask],
        position_ids=torch.cat([torch.arange(length) for length in lengths]),
        token_type_ids=halves[mask],
        language_ids=tongues[mask],
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).int(),
        predict_positions=predicted,
        labels=torch.randint(0, vocabulary, (len(predicted),), generator=generator),
        prediction_objective=torch.zeros(len(predicted), dtype=torch.int64),
        sequence_objective=torch.zeros(len(lengths), dtype=torch.int64),
        pair_key=unused,
        pair_index=unused,
        sequence_label=unused,
        row_id=torch.zeros(len(lengths), dtype=torch.int64),
    )
    return Padded(ids, mask.long(), halves, tongues, packed)


def draw(pair, lengths=LENGTHS):
    config = pair.described.config
    return sequences(
        pair.described.facts.vocabulary_size,
        pair.described.facts.pad_id,
        lengths,
        types=max(config.token_types, 1),
        languages=max(pair.languages, 1),
    )


def call(pair, batch):
    """Return what their model says about a padded batch."""
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    if pair.described.config.token_types:
        inputs["token_type_ids"] = batch.token_type_ids
    if pair.described.config.language_embeddings:
        inputs["langs"] = batch.language_ids
    return pair.theirs(**inputs)


def our_states(pair, batch):
    return pair.ours.encode(batch.packed, pair.ours.token_tables())


def first_states(states, batch):
    return states[batch.packed.cu_seqlens[:-1].long()]


def assert_close(name, ours, theirs, tolerance=LOGIT_TOLERANCE):
    """Compare, and show the worst difference with ``pytest -s``."""
    assert ours.shape == theirs.shape
    worst = float((ours - theirs).detach().abs().max())
    print(f"{name}: worst difference {worst:.1e} of {float(theirs.detach().abs().max()):.2f}")
    assert worst <= tolerance


@torch.no_grad()
def check_logits(pair, batch=None, *, field="logits"):
    """Compare the scores of all pieces at all real tokens; returns what both made, for other heads."""
    batch = draw(pair) if batch is None else batch
    said, states = call(pair, batch), our_states(pair, batch)
    name = type(pair.theirs).__name__
    assert_close(f"{name} {field}", pair.ours.logits(states), said[field][batch.real])
    return batch, said, states


def check_round_trip(pair):
    """Export to the same configuration gives their state dict back, bit for bit and under the same names."""
    before = pair.theirs.state_dict()
    after = export_weights(
        pair.described.family,
        pair.described.config,
        pair.json,
        pair.ours.state_dict(),
        pair.extras,
        language_count=pair.languages,
    )
    assert set(after) == set(before)
    for name, tensor in before.items():
        assert tensor.dtype == after[name].dtype, name
        assert torch.equal(tensor, after[name]), name


def check_gradients(pair, *, field="logits", keep=()):
    """Compare the gradients of one step of masked words, brought to our names by the map under test."""
    batch = draw(pair)
    packed = batch.packed
    logits = call(pair, batch)[field][batch.real][packed.predict_positions]
    torch.nn.functional.cross_entropy(logits, packed.labels).backward()
    count = len(packed.labels)
    pair.ours.language_model_loss(packed, torch.full((count,), 1.0 / count)).total.backward()
    compare_gradients(pair, keep)


def compare_gradients(pair, keep=()):
    """Hold what both sides' backward passes left against each other; ``keep`` names their buffers that are no parameters of ours."""
    values = dict(pair.theirs.named_parameters())
    gradients = {
        name: values[name].detach() if name in keep else torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in values.items()
    }
    expected, _ = import_weights(pair.described, pair.json, gradients)
    worst = 0.0
    for name, parameter in pair.ours.named_parameters():
        ours = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        worst = max(worst, float((ours - expected[name]).abs().max()))
        assert torch.allclose(ours, expected[name], atol=GRADIENT_TOLERANCE, rtol=0.0), name
    print(f"{type(pair.theirs).__name__} gradients: worst difference {worst:.1e}")
    assert max(float(g.abs().max()) for g in expected.values()) > 100 * GRADIENT_TOLERANCE


def check_sentence_gradients(pair, field):
    """Compare the gradients of one step of judged sentences."""
    batch = draw(pair)
    labels = torch.arange(len(LENGTHS)) % 2
    torch.nn.functional.cross_entropy(call(pair, batch)[field], labels).backward()
    scores = pair.ours.sentence_head(first_states(our_states(pair, batch), batch))
    torch.nn.functional.cross_entropy(scores, labels).backward()
    compare_gradients(pair)
