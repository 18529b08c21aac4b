"""Operations of a step, counted by torch's own counter on transformers' models and on plain torch."""

import pytest
import torch
import transformers
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from xlm.config.model import ModelConfig
from xlm.model.flops import attention_pairs, training_flops

VOCABULARY = 101
XLM_R = {"width": 32, "layers": 3, "heads": 4, "feed_forward": 80, "max_positions": 24, "norm_position": "post", "token_types": 1}


def counted(loss_of):
    with FlopCounterMode(display=False) as counter:
        loss_of().backward()
    return counter.get_total_flops()


def peer():
    config = transformers.XLMRobertaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=80,
        max_position_embeddings=26,
        attn_implementation="eager",  # products that the counter sees
    )
    return transformers.XLMRobertaForMaskedLM(config)


@pytest.mark.parametrize(("rows", "length"), [(2, 24), (3, 7)])
def test_xlm_r_at_all_positions(rows, length):
    model, ids = peer(), torch.randint(4, VOCABULARY, (rows, length))
    expected = counted(lambda: model(input_ids=ids, labels=ids).loss)
    assert training_flops(ModelConfig(**XLM_R), VOCABULARY, [length] * rows, rows * length) == expected


def test_xlm_r_at_predicted_positions_of_sequences_of_several_lengths():
    model, lengths = peer(), [5, 24, 11]
    texts = [torch.randint(4, VOCABULARY, (1, length)) for length in lengths]

    def loss():
        hidden = torch.cat([model.roberta(input_ids=ids).last_hidden_state[0] for ids in texts])
        return model.lm_head(hidden[::4]).logsumexp(-1).sum()

    assert training_flops(ModelConfig(**XLM_R), VOCABULARY, lengths, 10) == counted(loss)


def test_what_the_last_layer_leaves_out_behind_its_attention():
    # The maps of one layer behind attention, on the tokens that are not predicted.
    maps = nn.ModuleList([nn.Linear(32, 32), nn.Linear(32, 80), nn.Linear(80, 32)])
    states = torch.randn(40 - 10, 32, requires_grad=True)
    left_out = counted(lambda: maps[2](maps[1](maps[0](states))).sum())
    config = ModelConfig(**XLM_R)
    whole = training_flops(config, VOCABULARY, [5, 24, 11], 10)
    assert whole - training_flops(config, VOCABULARY, [5, 24, 11], 10, last_layer_whole=False) == left_out


def test_factorised_embeddings():
    config = transformers.AlbertConfig(
        vocab_size=VOCABULARY,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=80,
        attn_implementation="eager",
    )
    model, ids = transformers.AlbertForMaskedLM(config), torch.randint(4, VOCABULARY, (2, 9))
    shared = ModelConfig(**XLM_R, embedding_width=16, layer_groups=1)
    assert training_flops(shared, VOCABULARY, [9, 9], 18) == counted(lambda: model(input_ids=ids, labels=ids).loss)


def test_geglu_and_local_windows():
    width, inner, length, reach = 32, 48, 12, 2
    up, down = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
    states = torch.randn(length, width, requires_grad=True)

    def feed_forward():
        activated, gate = up(states).chunk(2, -1)
        return down(nn.functional.gelu(activated) * gate).sum()

    shape = {"width": width, "layers": 4, "heads": 4, "feed_forward": inner, "max_positions": length}
    plain = ModelConfig(**shape)
    gated = ModelConfig(**shape, activation="geglu")
    smaller = ModelConfig(**shape | {"feed_forward": inner - 16}, activation="geglu")
    sixteen_of_them = training_flops(gated, VOCABULARY, [length], 3) - training_flops(smaller, VOCABULARY, [length], 3)
    assert sixteen_of_them * inner == 4 * counted(feed_forward) * 16
    local = ModelConfig(**shape, local_window=2 * reach, global_every=2)
    hidden_pairs = length**2 - band(length, reach)
    # Two of four layers are local; scores and mixing cost a width each, forward and twice that backward.
    saved = training_flops(plain, VOCABULARY, [length], 3) - training_flops(local, VOCABULARY, [length], 3)
    assert saved == 2 * (6 * 2 * width * hidden_pairs)


@pytest.mark.parametrize("length", [0, 1, 2, 9])
@pytest.mark.parametrize("reach", [0, 1, 3, 8, 9, 50, None])
def test_pairs_in_a_window(length, reach):
    assert attention_pairs(length, reach) == band(length, length if reach is None else reach)


def band(length, reach):
    place = torch.arange(length)
    return int(((place[:, None] - place[None, :]).abs() <= reach).sum())
