"""A layer: stochastic depth, dropout of both branches, where its norms stand."""

from itertools import pairwise

import torch
from torch import nn

from tests.model.packed import LENGTHS, VOCABULARY, inputs, perturb, shape
from xlm.model.attention import plan_attention
from xlm.model.block import Block, LayerInput
from xlm.model.dropout import DropoutKey
from xlm.model.encoder import Encoder

DRAWS = 200


def build(**changes):
    return perturb(Encoder(shape(**changes), VOCABULARY, 0))


def only_attention(encoder):
    """Silence the feed-forward branches, so that what a layer adds is its attention's alone."""
    with torch.no_grad():
        for block in encoder.blocks:
            block.feed_forward.output.weight.zero_()
            block.feed_forward.output.bias.zero_()
    return encoder


def layers_of(encoder, key):
    encoder.dropout_key.set(key)
    with torch.no_grad():
        return encoder(**inputs(), return_layers=True)


def attended(block, hidden, length):
    plan = plan_attention(torch.tensor([0, length]).int(), block.attention.heads)
    return block.attention(block.attention_norm(hidden), LayerInput(plan))


def test_a_sequence_skips_a_branch_or_receives_more_of_it():
    encoder = only_attention(build(stochastic_depth=0.6, final_norm="none"))
    received = set()
    for draw in range(3):
        states = layers_of(encoder, draw)
        for layer, (block, before, after) in enumerate(zip(encoder.blocks, states[:-1], states[1:], strict=True)):
            kept = 1 / (1 - 0.2 * (layer + 1))
            for start, mine in zip(before.split(LENGTHS), (after - before).split(LENGTHS), strict=True):
                factor = 0.0 if not mine.any() else kept
                torch.testing.assert_close(mine, attended(block, start, len(start)).detach() * factor, atol=1e-4, rtol=1e-3)
                received.add(round(factor, 3))
    assert received == {0.0, 1.25, 1.667, 2.5}


def test_deeper_layers_are_skipped_more_often_and_the_mean_stays():
    encoder = only_attention(build(stochastic_depth=0.6, final_norm="none"))
    skipped = torch.zeros(DRAWS, 3, len(LENGTHS))
    for draw in range(DRAWS):
        states = layers_of(encoder, draw)
        for layer, (before, after) in enumerate(pairwise(states)):
            skipped[draw, layer] = torch.tensor([not part.any() for part in (after - before).split(LENGTHS)])
    # 1,000 draws a layer: three standard deviations are at most .05. Kept branches are divided by the share that is kept.
    torch.testing.assert_close(skipped.mean((0, 2)), torch.tensor([0.2, 0.4, 0.6]), atol=0.05, rtol=0)
    assert len({tuple(draw) for draw in skipped.flatten(1).tolist()}) > 100, "layers and sequences are drawn one by one"


def test_a_post_norm_layer_without_its_branches_is_its_norms():
    encoder = build(stochastic_depth=0.9, norm_position="post", layers=1)
    block = encoder.blocks[0]
    skipped = 0
    for draw in range(20):
        before, after = layers_of(encoder, draw)
        alone = block.feed_forward_norm(block.attention_norm(before))
        skipped += sum(torch.allclose(mine, theirs) for mine, theirs in zip(after.split(LENGTHS), alone.split(LENGTHS), strict=True))
    assert 60 <= skipped <= 95, "of 100, each with probability .81"


def test_stochastic_depth_follows_its_key_and_is_off_in_evaluation():
    encoder, plain = build(stochastic_depth=0.5), build()
    assert torch.equal(layers_of(encoder, 3)[-1], layers_of(encoder, 3)[-1])
    assert any(not torch.equal(layers_of(encoder, 3)[-1], layers_of(encoder, key)[-1]) for key in (4, 5))
    assert torch.equal(layers_of(encoder.eval(), 3)[-1], layers_of(plain, 9)[-1])


def test_stochastic_depth_reaches_needed_tokens_as_it_reaches_all():
    encoder = build(stochastic_depth=0.5)
    needed = torch.tensor([0, 5, 20, 34])
    encoder.dropout_key.set(1)
    some = encoder(**inputs(), needed=needed)
    torch.testing.assert_close(some, layers_of(encoder, 1)[-1][needed])


def test_both_branches_are_dropped_out():
    for silent in ("attention", "feed_forward"):
        encoder = build(dropout=0.3, attention_dropout=0.0, layers=1, final_norm="none")
        with torch.no_grad():
            part = getattr(encoder.blocks[0], silent).output
            part.weight.zero_()
            part.bias.zero_()
        before, after = layers_of(encoder, 1)
        left_out = float((after == before).float().mean())
        assert 0.2 < left_out < 0.4, silent


def test_attention_weights_have_a_rate_of_their_own():
    plain = build(layers=1)
    for dropout, own, moves in ((0.0, 0.5, True), (0.0, None, False), (0.0, 0.0, False)):
        encoder = build(layers=1, dropout=dropout, attention_dropout=own)
        assert (not torch.equal(layers_of(encoder, 1)[-1], layers_of(plain, 1)[-1])) == moves
    assert Block(shape(dropout=0.2), DropoutKey()).attention.weight_dropout.rate == 0.2
    assert Block(shape(dropout=0.2, attention_dropout=0.0), DropoutKey()).attention.weight_dropout.rate == 0.0


def test_normalised_embeddings_are_not_normalised_again_by_the_block_that_reads_them():
    first, second, third = build(embedding_norm=True).blocks
    assert isinstance(first.attention_norm, nn.Identity)
    assert isinstance(second.attention_norm, nn.LayerNorm)
    assert isinstance(third.attention_norm, nn.LayerNorm)
    for changes in ({}, {"norm_position": "post"}, {"layer_groups": 1}, {"embedding_width": 4}):
        encoder = build(**{"embedding_norm": bool(changes), **changes})
        assert isinstance(encoder.blocks[0].attention_norm, nn.LayerNorm), changes


def test_without_biases_there_is_none():
    encoder = build(biases=False, embedding_norm=True, embedding_width=8, activation="geglu")
    assert not [name for name, _ in encoder.named_parameters() if "bias" in name]
