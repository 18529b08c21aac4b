"""Validation's batches over real shards: the same on any number of ranks, and of no text that training reads.

What it measures, and that it leaves weights alone, is in test_engine.py.
"""

from dataclasses import fields

import pytest
import torch

from tests.integration.made_up_run import RECIPE, write_recipe, write_shards, write_vocabulary
from xlm.batching.loader import BatchLoader
from xlm.errors import UserError
from xlm.mixing.data_plan import DataPlan
from xlm.mixing.held_out_rows import HeldOutRows
from xlm.runs.folder import RunFolder
from xlm.shards.reader import ShardSet
from xlm.training.distributed import Process
from xlm.training.trainable import check_trainable
from xlm.training.validation import ValidationBatches

VALIDATED = {
    **RECIPE,
    "shards": {"held_out_share": 0.2},
    "training": {**RECIPE["training"], "micro_batch_tokens": 256, "validation": {"every_steps": 3, "rows_per_language": 6}},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("validated")
    recipe, run_folder = write_recipe(folder / "recipe.yaml", VALIDATED), RunFolder(folder / "run")
    vocabulary = write_vocabulary(run_folder)
    write_shards(run_folder, recipe, vocabulary)
    return recipe, ShardSet(run_folder.shards, vocabulary.fingerprint, vocabulary.size), vocabulary


def batches_of(run, rank=0, world_size=1, **changes):
    recipe, shards, vocabulary = run
    recipe = recipe.model_copy(update=changes)
    section = recipe.training.validation
    rows = HeldOutRows(recipe, section, shards.index, ("de", "en"))
    return ValidationBatches(
        rows, shards, vocabulary, section.seed, process=Process(rank, world_size, rank, world_size), micro_batch_tokens=256
    )


def same(one, other):
    return all(
        torch.equal(value, getattr(other, field.name)) for field in fields(one) if torch.is_tensor(value := getattr(one, field.name))
    )


def texts_of(batch):
    """The sequences before masking, whole and side by side: what stands between special pieces."""
    ids = batch.input_ids.clone()
    ids[batch.predict_positions] = batch.labels
    found = set()
    for sequence in torch.tensor_split(ids, batch.cu_seqlens[1:-1].long()):
        pieces, text = sequence.tolist(), []
        for piece in pieces:
            if piece in (2, 3):  # <s>, </s>
                found.add(tuple(text))
                text = []
            else:
                text.append(piece)
    return found - {()}


def test_any_number_of_ranks_goes_through_the_same_batches(run):
    (alone,) = [list(batches_of(run))]
    assert same(alone[0], next(iter(batches_of(run))))
    assert len(alone) == -(-len(batches_of(run)) // 4) > 3
    for world_size in (2, 3):
        by_rank = [list(batches_of(run, rank, world_size)) for rank in range(world_size)]
        assert len({len(of_rank) for of_rank in by_rank}) == 1
        dealt = [batch for turn in zip(*by_rank, strict=True) for batch in turn]
        assert all(same(one, other) for one, other in zip(alone, dealt, strict=False))
        assert all(batch.tokens == 0 for batch in dealt[len(alone) :])


def test_masks_do_not_follow_the_recipe(run):
    recipe, _, _ = run
    phases = tuple(phase.model_copy(update={"mask_rate": 0.5}) for phase in recipe.phases[::-1])
    assert all(same(one, other) for one, other in zip(batches_of(run), batches_of(run, phases=phases, seed=99), strict=True))


def test_training_reads_none_of_the_texts(run):
    recipe, shards, vocabulary = run
    longer = recipe.model_copy(update={"phases": tuple(phase.model_copy(update={"steps": 40}) for phase in recipe.phases)})
    loader = BatchLoader(DataPlan(longer, shards.index), shards, vocabulary, 5, rank=0, world_size=1, micro_batch_tokens=512)
    trained = set().union(*(texts_of(batch) for step in range(80) for batch in loader.batch(step)))
    validated = set().union(*(texts_of(batch) for batch in batches_of(run)))
    assert len(trained) > 200
    assert len(validated) > 30
    assert not trained & validated


def test_a_model_without_the_head_is_told(run):
    recipe, _, _ = run
    model = recipe.model.model_copy(update={"language_model_head": False})
    phases = tuple(
        phase.model_copy(update={"objectives": {"contrastive": phase.objectives["contrastive"].model_copy(update={"share": 1.0})}})
        for phase in recipe.phases
    )
    with pytest.raises(UserError, match=r"training\.validation measures MLM and TLM, which need model\.language_model_head"):
        check_trainable(recipe.model_copy(update={"model": model, "phases": phases}))
