"""The encoder against transformers: same weights, same logits, same gradients, packed against padded."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
import transformers

from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.model.encoder import Encoder
from xlm.model.pretraining import PretrainingModel

VOCABULARY, WIDTH, LAYERS, HEADS, INNER = 97, 32, 3, 4, 48
LENGTHS = [1, 7, 12, 3, 12, 20]
PAD = 1
SMALL = ModelConfig(width=WIDTH, layers=LAYERS, heads=HEADS, feed_forward=INNER, max_positions=24)


def their_model(kind):
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.2,
    }
    torch.manual_seed(0)
    if kind == "bert":
        model = transformers.BertForMaskedLM(transformers.BertConfig(max_position_embeddings=24, type_vocab_size=2, **sizes))
    else:
        config = transformers.XLMRobertaConfig(
            max_position_embeddings=26, type_vocab_size=1, pad_token_id=PAD, layer_norm_eps=1e-5, **sizes
        )
        model = transformers.XLMRobertaForMaskedLM(config)
    for name, parameter in model.named_parameters():
        if "bias" in name or "LayerNorm" in name:
            torch.nn.init.normal_(parameter, mean=float("LayerNorm.weight" in name), std=0.2)
    return model.eval()


def pairs_of_parameters(kind, theirs, ours):
    """Yield (our parameter, the tensors of theirs that make it up), positions without RoBERTa's offset."""
    base = theirs.bert if kind == "bert" else theirs.roberta
    offset = 0 if kind == "bert" else PAD + 1
    head = theirs.cls.predictions if kind == "bert" else theirs.lm_head
    dense, norm = (head.transform.dense, head.transform.LayerNorm) if kind == "bert" else (head.dense, head.layer_norm)
    embeddings, mine = base.embeddings, ours.encoder.embeddings
    yield mine.tokens.weight, [embeddings.word_embeddings.weight]
    yield mine.positions.weight, [embeddings.position_embeddings.weight], offset
    yield mine.token_types.weight, [embeddings.token_type_embeddings.weight]
    yield from linear_or_norm(mine.norm, [embeddings.LayerNorm])
    for block, layer in zip(ours.encoder.blocks, base.encoder.layer, strict=True):
        attention = layer.attention.self
        yield from linear_or_norm(block.attention.qkv, [attention.query, attention.key, attention.value])
        yield from linear_or_norm(block.attention.output, [layer.attention.output.dense])
        yield from linear_or_norm(block.attention_norm, [layer.attention.output.LayerNorm])
        yield from linear_or_norm(block.feed_forward.inner, [layer.intermediate.dense])
        yield from linear_or_norm(block.feed_forward.output, [layer.output.dense])
        yield from linear_or_norm(block.feed_forward_norm, [layer.output.LayerNorm])
    yield from linear_or_norm(ours.lm_head.dense, [dense])
    yield from linear_or_norm(ours.lm_head.norm, [norm])
    yield ours.lm_head.bias, [head.bias]


def linear_or_norm(mine, theirs):
    yield mine.weight, [module.weight for module in theirs]
    yield mine.bias, [module.bias for module in theirs]


def build(kind):
    theirs = their_model(kind)
    config = ModelConfig(
        width=WIDTH,
        layers=LAYERS,
        heads=HEADS,
        feed_forward=INNER,
        max_positions=24,
        norm_position="post",
        token_types=2 if kind == "bert" else 1,
        norm_epsilon=1e-12 if kind == "bert" else 1e-5,
    )
    ours = PretrainingModel(config, VOCABULARY, 0)
    seen = set()
    with torch.no_grad():
        for mine, tensors, *offset in pairs_of_parameters(kind, theirs, ours):
            mine.copy_(torch.cat(tensors)[offset[0] if offset else 0 :])
            seen.add(id(mine))
    assert seen == {id(parameter) for parameter in ours.parameters()}, "a parameter of ours has no counterpart"
    return theirs, ours


def packed_and_padded(kind):
    generator = torch.Generator().manual_seed(3)
    sequences = [torch.randint(5, VOCABULARY, (length,), generator=generator) for length in LENGTHS]
    types = [torch.randint(0, 2, (length,), generator=generator) if kind == "bert" else torch.zeros(length).long() for length in LENGTHS]
    padded = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=PAD)
    padded_types = torch.nn.utils.rnn.pad_sequence(types, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(length).long() for length in LENGTHS], batch_first=True)
    packed = {
        "input_ids": torch.cat(sequences),
        "position_ids": torch.cat([torch.arange(length) for length in LENGTHS]),
        "cu_seqlens": torch.tensor([0, *LENGTHS]).cumsum(0).int(),
        "token_type_ids": torch.cat(types),
    }
    return packed, {"input_ids": padded, "attention_mask": mask, "token_type_ids": padded_types}


@pytest.mark.parametrize("kind", ["bert", "xlm-r"])
def test_same_logits_as_transformers_on_packed_and_unpadded_input(kind):
    theirs, ours = build(kind)
    packed, padded = packed_and_padded(kind)
    with torch.no_grad():
        their_logits = theirs(**padded).logits[padded["attention_mask"].bool()]
        our_logits = ours.logits(ours.encoder(**packed))
        assert (our_logits - their_logits).abs().max() <= 1e-5
        # One sequence alone, no padding on either side.
        alone = {name: value[1:8] for name, value in packed.items() if name != "cu_seqlens"}
        single = theirs(**{name: value[1:2, :7] for name, value in padded.items()}).logits[0]
        mine = ours.logits(ours.encoder(**alone, cu_seqlens=torch.tensor([0, 7], dtype=torch.int32)))
        assert (mine - single).abs().max() <= 1e-5


@pytest.mark.parametrize("kind", ["bert", "xlm-r"])
def test_same_gradients_as_transformers_on_one_mlm_step(kind):
    theirs, ours = build(kind)
    packed, padded = packed_and_padded(kind)
    positions = torch.tensor([2, 5, 9, 17, 20, 33, 40, 54])
    labels = torch.randint(5, VOCABULARY, positions.shape, generator=torch.Generator().manual_seed(4))
    F.cross_entropy(theirs(**padded).logits[padded["attention_mask"].bool()][positions], labels).backward()
    ours.token_losses(ours.encoder(**packed), positions, labels).mean().backward()
    for mine, tensors, *offset in pairs_of_parameters(kind, theirs, ours):
        expected = torch.cat([tensor.grad for tensor in tensors])[offset[0] if offset else 0 :].clone()
        if mine is ours.encoder.embeddings.tokens.weight:
            # Theirs gives the padding row no gradient from the input side; ours never sees padding at all.
            torch.testing.assert_close(mine.grad[PAD + 1 :], expected[PAD + 1 :], rtol=1e-4, atol=1e-4)
        else:
            torch.testing.assert_close(mine.grad, expected, rtol=1e-4, atol=1e-4)


def one_sequence(length, **extra):
    return {
        "input_ids": torch.arange(length) % 50,
        "position_ids": torch.arange(length),
        "cu_seqlens": torch.tensor([0, length]).int(),
        **extra,
    }


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_layers_begin_with_the_embeddings_and_end_with_the_result(norm_position):
    encoder = Encoder(SMALL.model_copy(update={"norm_position": norm_position}), VOCABULARY, 0)
    batch = one_sequence(9)
    layers = encoder(**batch, return_layers=True)
    assert len(layers) == LAYERS + 1
    assert torch.equal(layers[0], encoder.embeddings(batch["input_ids"], batch["position_ids"], None, None))
    assert torch.equal(layers[-1], encoder(**batch))
    if norm_position == "pre":
        torch.testing.assert_close(layers[-1].mean(-1), torch.zeros(9), atol=1e-5, rtol=0)


def test_pre_norm_block_follows_its_formula():
    encoder = Encoder(SMALL, VOCABULARY, 0)
    batch = one_sequence(6)
    first, second = encoder(**batch, return_layers=True)[:2]
    block = encoder.blocks[0]
    query, key, value = block.attention.qkv(block.attention_norm(first)).view(6, 3, HEADS, WIDTH // HEADS).permute(1, 2, 0, 3)
    mixed = F.scaled_dot_product_attention(query, key, value).transpose(0, 1).reshape(6, WIDTH)
    middle = first + block.attention.output(mixed)
    inner = F.gelu(block.feed_forward.inner(block.feed_forward_norm(middle)))
    torch.testing.assert_close(second, middle + block.feed_forward.output(inner), atol=1e-6, rtol=1e-5)


def test_order_of_sequences_does_not_matter():
    encoder = Encoder(SMALL, VOCABULARY, 0)
    parts = [torch.arange(1, 8), torch.arange(20, 32)]

    def encode(sequences):
        lengths = [len(part) for part in sequences]
        positions = torch.cat([torch.arange(length) for length in lengths])
        return encoder(torch.cat(sequences), positions, torch.tensor([0, *lengths]).cumsum(0).int()).split(lengths)

    one, two = encode(parts)
    two_again, one_again = encode(parts[::-1])
    torch.testing.assert_close(one, one_again)
    torch.testing.assert_close(two, two_again)


def test_a_sequence_longer_than_the_positions_is_an_error_that_names_both():
    encoder = Encoder(SMALL, VOCABULARY, 0)
    with pytest.raises(UserError, match=r"25 positions.*max_positions 24"):
        encoder(**one_sequence(25))
    restarted = one_sequence(26)
    restarted["position_ids"] = torch.arange(26) % 13
    assert encoder(**restarted).shape == (26, WIDTH)


def test_dropout_acts_in_training_only_and_follows_its_key():
    encoder = Encoder(SMALL.model_copy(update={"dropout": 0.2}), VOCABULARY, 0)
    batch = one_sequence(10)

    def run(*key):
        encoder.dropout_key.set(*key)
        return encoder(**batch)

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))
    encoder.eval()
    assert torch.equal(run(1), run(2))


def test_building_leaves_the_global_random_state_alone():
    before = torch.get_rng_state()
    Encoder(SMALL, VOCABULARY, 0)
    assert torch.equal(before, torch.get_rng_state())


def test_without_a_final_norm_the_last_layer_is_the_residual_stream():
    config = SMALL.model_copy(update={"final_norm": False})
    encoder = Encoder(config, VOCABULARY, 0)
    ids, positions, bounds = torch.arange(5, 12), torch.arange(7), torch.tensor([0, 7], dtype=torch.int32)
    assert encoder.final_norm is None
    layers = encoder(ids, positions, bounds, return_layers=True)
    normed = Encoder(SMALL, VOCABULARY, 0)
    torch.testing.assert_close(normed.final_norm(layers[-1]), normed(ids, positions, bounds))
