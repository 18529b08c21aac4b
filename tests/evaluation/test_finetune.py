from dataclasses import replace

import numpy as np
import pytest
import torch

from xlm.config.model import ModelConfig
from xlm.evaluation.finetune import (
    FinetuneSettings,
    LabelledTexts,
    choose_finetuned,
    finetune,
    has_collapsed,
    linear_schedule,
    one_torch_thread,
    predict,
)
from xlm.evaluation.packing import TokenisedTexts
from xlm.model.encoder import Encoder

CONFIG = ModelConfig(width=32, layers=1, heads=2, feed_forward=64, max_positions=16, initializer_range=0.2, dropout=0.1)
SETTINGS = FinetuneSettings(learning_rate=3e-3, epochs=4, batch_size=8, freeze_token_embeddings=True)


def sentences(count, state):
    """Sentences of random pieces whose label is which of three marker pieces is among them."""
    rng = np.random.default_rng(state)
    labels = rng.integers(0, 3, size=count)
    sequences = []
    for label in labels:
        pieces = rng.integers(10, 60, size=rng.integers(2, 9))
        pieces[rng.integers(len(pieces))] = 5 + label
        sequences.append(np.array([2, *pieces, 3]))
    return LabelledTexts(TokenisedTexts(tuple(sequences), 0), labels)


@pytest.fixture(scope="module")
def encoder():
    return Encoder(CONFIG, 60, 1)


@pytest.fixture(scope="module")
def data():
    return sentences(160, 0), sentences(60, 1)


@pytest.fixture(scope="module")
def tuned(encoder, data):
    return finetune(encoder, *data, label_count=3, settings=SETTINGS, seed=1)


def test_the_task_is_learned(tuned):
    fresh = sentences(100, 2)
    assert np.mean(predict(tuned.classifier, fresh.texts) == fresh.labels) > 0.8
    assert 1 <= tuned.epoch <= SETTINGS.epochs


def test_returned_weights_are_those_of_the_reported_epoch(tuned, data):
    assert np.mean(predict(tuned.classifier, data[1].texts) == data[1].labels) == tuned.dev_accuracy


def test_the_encoder_given_is_left_alone_and_frozen_embeddings_stay(encoder, tuned):
    before = Encoder(CONFIG, 60, 1)
    for (name, ours), (_, theirs) in zip(encoder.named_parameters(), before.named_parameters(), strict=True):
        assert torch.equal(ours, theirs), name
        assert ours.requires_grad
    after = dict(tuned.classifier.encoder.named_parameters())
    assert torch.equal(after["embeddings.tokens.weight"], encoder.embeddings.tokens.weight)
    assert not torch.equal(after["blocks.0.attention.qkv.weight"], encoder.blocks[0].attention.qkv.weight)


def test_embeddings_move_when_they_are_not_frozen(encoder, data):
    settings = FinetuneSettings(3e-3, 1, 8, freeze_token_embeddings=False)
    moved = finetune(encoder, *data, label_count=3, settings=settings, seed=1).classifier.encoder.embeddings.tokens.weight
    assert not torch.equal(moved, encoder.embeddings.tokens.weight)


def test_same_seed_same_weights_whatever_happened_before(encoder, data, tuned):
    torch.manual_seed(99)
    torch.rand(3)
    again = finetune(encoder, *data, label_count=3, settings=SETTINGS, seed=1)
    other = finetune(encoder, *data, label_count=3, settings=SETTINGS, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(tuned.classifier.parameters(), again.classifier.parameters(), strict=True))
    assert not torch.equal(tuned.classifier.head.weight, other.classifier.head.weight)


def test_global_random_state_is_not_touched(encoder, data):
    torch.manual_seed(5)
    expected = torch.get_rng_state()
    finetune(encoder, *data, label_count=3, settings=FinetuneSettings(1e-3, 1, 32, True), seed=3)
    assert torch.equal(torch.get_rng_state(), expected)


def test_dev_chooses_the_learning_rate(encoder, data):
    train, dev = data
    settings = [FinetuneSettings(rate, 2, 8, True) for rate in (1e-7, 3e-3)]
    epochs = []
    choice, runs = choose_finetuned(
        encoder,
        train,
        dev,
        [np.arange(0, 150), np.arange(10, 160)],
        [1, 2],
        settings,
        label_count=3,
        after_epoch=lambda: epochs.append(1),
    )
    assert choice.learning_rate == 3e-3
    assert choice.dev_accuracy == np.mean([run.dev_accuracy for run in runs])
    assert len(runs) == 2
    assert len(epochs) == 2 * 2 * 2


def test_seeds_side_by_side_are_what_each_is_alone(encoder, data):
    train, dev = data
    rows = [np.arange(0, 150), np.arange(10, 160)]
    threads = torch.get_num_threads()
    _, runs = choose_finetuned(encoder, train, dev, rows, [1, 2], [SETTINGS], label_count=3)
    assert torch.get_num_threads() == threads
    with one_torch_thread():
        for run, own, seed in zip(runs, rows, (1, 2), strict=True):
            alone = finetune(encoder, train.subset(own), dev, label_count=3, settings=SETTINGS, seed=seed)
            assert run.epoch == alone.epoch
            assert all(torch.equal(a, b) for a, b in zip(run.classifier.parameters(), alone.classifier.parameters(), strict=True))


def test_a_seed_that_fails_ends_the_others_soon(encoder, data):
    train, dev = data
    seen = []

    def interrupt():
        seen.append(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        choose_finetuned(
            encoder, train, dev, [np.arange(160)] * 2, [1, 2], [replace(SETTINGS, epochs=500)], label_count=3, after_epoch=interrupt
        )
    assert len(seen) <= 2


def test_schedule_rises_over_a_tenth_and_falls_to_zero():
    shares = [linear_schedule(step, 100) for step in range(101)]
    assert shares[:10] == pytest.approx([0.1 * (step + 1) for step in range(10)])
    assert shares[10] == 1.0
    assert shares[55] == pytest.approx(0.5)
    assert shares[100] == 0.0
    assert all(0 <= share <= 1 for share in shares)


def test_collapse_is_more_than_the_share_of_one_label():
    assert has_collapsed(np.zeros(100, dtype=np.int64))
    assert has_collapsed(np.array([1] * 96 + [0] * 4))
    assert not has_collapsed(np.array([1] * 95 + [0] * 5))
    assert not has_collapsed(np.zeros(0, dtype=np.int64))


def test_subset_keeps_texts_and_labels_together(data):
    part = data[0].subset(np.array([3, 1]))
    assert part.labels.tolist() == data[0].labels[[3, 1]].tolist()
    assert part.texts.sequences[0] is data[0].texts.sequences[3]
