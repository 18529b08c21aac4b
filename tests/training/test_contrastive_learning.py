"""On made-up parallel text every option of the contrastive objective learns which sentence translates which."""

import numpy as np
import pytest
import torch

from xlm.batching.collate import RowsOfBatch, collate
from xlm.batching.contrastive import pair_keys
from xlm.batching.objective_rows import RowMaker
from xlm.batching.texts import RowTexts
from xlm.config.model import ModelConfig
from xlm.config.phases import MaskingSection, ObjectiveShare
from xlm.config.training import ContrastiveSection, OptimizerSection, TrainingSection
from xlm.model.pooling import pool, pooled_tokens
from xlm.model.pretraining import PretrainingModel
from xlm.seeding import keyed_generator
from xlm.training.objectives import PretrainingObjective
from xlm.training.statistics import LossStatistics
from xlm.training.step_context import BatchCounts, StepContext

MODEL = ModelConfig(width=32, layers=2, heads=2, feed_forward=64, max_positions=24, embedding_initializer_range=0.1)
WORDS = 20  # of each language; the second one's stand behind the first's, in an order of their own
OPTIONS: dict = {
    "plain": {},
    "first": {"pooling": "first"},
    "layer": {"layer": 1},
    "queue": {"queue_pairs": 64},
    "momentum": {"momentum": 0.9},
    "queue, momentum": {"queue_pairs": 64, "momentum": 0.9},
    "mixup": {"mixup": 0.5},
}


class Pieces:
    """What batching asks of a vocabulary."""

    size = 5 + 2 * WORDS
    special_ids = (0, 1, 2, 3, 4)
    bos_id, eos_id, mask_id = 2, 3, 4
    is_word_start = np.ones(5 + 2 * WORDS, dtype=np.bool_)


def sentences(name, count, mixup=0.0):
    """A row of pairs of 3 to 8 words, as batching makes it."""
    generator = keyed_generator("parallel", name)
    sources = [5 + generator.integers(0, WORDS, generator.integers(3, 9)) for _ in range(count)]
    targets = [WORDS + generator.permutation(source) for source in sources]
    texts, seeds = RowTexts.of([sources, targets], [0, 1], [count]), np.array([generator.integers(1 << 60)], dtype=np.uint64)
    maker = RowMaker(Pieces(), MaskingSection(), np.array([True, True]))
    arrangement = maker.arrange("contrastive", ObjectiveShare(share=1.0, mixup=mixup), texts, seeds)
    keys = pair_keys([str(number) for number in range(count)], arrangement)
    rows = maker.make("contrastive", arrangement, texts, seeds, 0.15, keys)
    (batch,) = collate([RowsOfBatch(rows, np.zeros(1, dtype=np.int64))], [1])
    return batch


def retrieved(model, section, batch):
    """The share of sources whose nearest target is their own."""
    everything = torch.ones(batch.sequences, dtype=torch.bool)
    with torch.no_grad():
        states = model.encode_layers(batch, model.token_tables())[-1 if section.layer is None else section.layer]
    tokens = pooled_tokens(batch.cu_seqlens, everything, section.pooling)
    vectors = torch.nn.functional.normalize(pool(states[tokens], batch.cu_seqlens.diff(), section.pooling), dim=1)
    nearest = (vectors[0::2] @ vectors[1::2].T).argmax(dim=1)
    return float((nearest == torch.arange(len(nearest))).float().mean())


@pytest.mark.parametrize("name", OPTIONS)
def test_the_loss_falls_and_translations_are_found(name):
    options = dict(OPTIONS[name])
    mixup = options.pop("mixup", 0.0)
    section = ContrastiveSection(temperature=0.1, **options)
    training = TrainingSection(
        tokens_per_step=256, micro_batch_tokens=256, optimizer=OptimizerSection(learning_rate=1e-2), contrastive=section
    )
    model = PretrainingModel(MODEL, Pieces.size, 2)
    model.initialise(1)
    module = PretrainingObjective(model, training, LossStatistics(("only",), ("en", "de"), torch.device("cpu")))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    held_out = sentences("held out", 60)
    before, losses = retrieved(model, section, held_out), []
    for step in range(60):
        batch = sentences(step, 16, mixup)
        context = StepContext((BatchCounts.of([batch]),), {"contrastive": ObjectiveShare(share=1.0)}, 0, 0)
        loss = module(batch, context, True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # What guessing among all candidates would cost; a queue is full by then.
    chance = np.log(context.pairs + section.queue_pairs)
    assert np.mean(losses[-5:]) < 0.6 * chance
    assert before < 0.1
    assert retrieved(model, section, held_out) > before + 0.25
