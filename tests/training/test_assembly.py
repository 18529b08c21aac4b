import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_run import make_run, write_vocabulary

from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.errors import UserError
from xlm.model.aligned import save_aligned
from xlm.runs.folder import RunFolder
from xlm.runs.stage import Stage
from xlm.storage.publish import publish
from xlm.training.assembly import (
    check_started,
    describe_model,
    open_run,
    parameter_count,
    read_inputs,
    reopen_finished,
    set_aside_finished,
    stage_inputs,
)
from xlm.training.distributed import Process, join_group, leave_group
from xlm.training.run_record import read_run_record
from xlm.training.weights import ModelDescription
from xlm.vocab.vocabulary import Vocabulary

ONE = Process(0, 1, 0, 1)
ZERO2 = Path(__file__).parents[2] / "deepspeed_configs" / "zero2.json"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("assembly")
    return make_run(root), root / "run"


@pytest.fixture
def run(made, tmp_path):
    """A recipe reader and the folder of a run up to its shards."""
    shutil.copytree(made[1], tmp_path / "run")
    overrides_of_one = ["training.micro_batch_tokens=512"]  # one rank has to hold all pairs of a step
    return (lambda *overrides: load_config(Recipe, made[0], [*overrides_of_one, *overrides])), RunFolder(tmp_path / "run")


def test_a_run_is_recorded_once_and_goes_on_as_it_was(run):
    read, folder = run
    inputs = read_inputs(read(), folder, ONE)
    record, config = open_run(read(), folder, inputs, ZERO2, ONE)
    assert record.precision == "bf16"
    assert config["gradient_accumulation_steps"] == inputs.loader.micro_steps
    assert read_run_record(folder.train).tracking_key == record.tracking_key
    again, _ = open_run(read("training.precision=auto", "training.checkpoint.every_steps=50"), folder, inputs, ZERO2, ONE)
    assert again.tracking_key == record.tracking_key
    assert again.precision == "bf16"
    (folder.train / "checkpoints" / "step-00000001").mkdir(parents=True)
    with pytest.raises(UserError, match=r"started with seed = 5, the recipe now says 6"):
        open_run(read("seed=6"), folder, inputs, ZERO2, ONE)
    with pytest.raises(UserError, match=r"asks for training\.precision fp32 but this run was started in bf16"):
        open_run(read("training.precision=fp32"), folder, inputs, ZERO2, ONE)


def test_a_start_that_saved_nothing_does_not_hold_the_folder(run):
    read, folder = run
    inputs = read_inputs(read(), folder, ONE)
    mistaken, _ = open_run(read("seed=6"), folder, inputs, ZERO2, ONE)
    right, _ = open_run(read(), folder, inputs, ZERO2, ONE)
    assert right.recipe["seed"] == read().seed
    assert right.tracking_key != mistaken.tracking_key


def test_a_start_with_other_code_is_said_and_kept(run, monkeypatch, capsys):
    read, folder = run
    inputs = read_inputs(read(), folder, ONE)
    open_run(read(), folder, inputs, ZERO2, ONE)
    before = read_run_record(folder.train)
    assert "note:" not in capsys.readouterr().out
    monkeypatch.setattr("xlm.training.assembly.code_fingerprint", lambda *rooms: "edited")
    record, _ = open_run(read(), folder, inputs, ZERO2, ONE)
    assert "the code or a library changed since this run was started" in capsys.readouterr().out
    # Recorded at once: a start that is killed has trained as well.
    assert [start["code"] for start in read_run_record(folder.train).starts] == [before.code, "edited"]
    assert record.code_changed
    assert record.tracking_key == before.tracking_key


def test_a_model_description_names_its_vocabulary_and_languages(run):
    read, folder = run
    inputs = read_inputs(read(), folder, ONE)
    record, _ = open_run(read(), folder, inputs, ZERO2, ONE)
    about = describe_model(read(), inputs, record)
    assert isinstance(about, ModelDescription)
    assert about.languages == ("de", "en")
    assert about.vocabulary_fingerprint == inputs.vocabulary.fingerprint
    assert about.vocabulary_size == inputs.vocabulary.size


def test_inputs_that_are_missing_or_of_another_vocabulary_are_sentences(run):
    read, folder = run
    with pytest.raises(UserError, match="the stage that writes 'embeddings' has not finished"):
        read_inputs(read("embeddings={kind: aligned}"), folder, ONE)
    write_vocabulary(folder, seed=2)
    with pytest.raises(UserError, match="vocabulary"):
        read_inputs(read(), folder, ONE)
    shutil.rmtree(folder.shards)
    with pytest.raises(UserError, match="the stage that writes 'shards' has not finished"):
        read_inputs(read(), folder, ONE)


def test_ids_outside_the_vocabulary_are_found_when_a_shard_is_opened(run, monkeypatch):
    read, folder = run
    monkeypatch.setattr(Vocabulary, "size", property(lambda vocabulary: 60))
    with pytest.raises(UserError, match=r"this shard holds piece id \d+, but the vocabulary has 60 pieces"):
        read_inputs(read(), folder, ONE).loader.batch(0)


def test_an_objective_that_cannot_be_trained_is_said_before_anything_is_read(run):
    read, folder = run
    shutil.rmtree(folder.shards)
    with pytest.raises(UserError, match=r"phase 'long' has rtd, which needs model\.generator"):
        read_inputs(read("phases.1.objectives={mlm: {share: 0.5}, rtd: {share: 0.5}}"), folder, ONE)


def test_who_builds_batches_may_change_within_a_run(run):
    read, folder = run
    inputs = read_inputs(read(), folder, ONE)
    before = stage_inputs(read(), inputs)
    record, _ = open_run(read(), folder, inputs, ZERO2, ONE)
    (folder.train / "checkpoints" / "step-00000001").mkdir(parents=True)
    changed = read("training.loader={workers: 2, steps_ahead: 5}")
    again, _ = open_run(changed, folder, read_inputs(changed, folder, ONE), ZERO2, ONE)
    assert again.tracking_key == record.tracking_key
    assert stage_inputs(changed, inputs) == before


def test_shards_at_a_url_give_the_same_batches(run, tmp_path, monkeypatch):
    read, folder = run
    here = read_inputs(read(), folder, ONE)
    wanted = [here.loader.batch(step) for step in (0, 12)]
    publish(folder.shards, (tmp_path / "bucket").as_uri(), {})
    shutil.rmtree(folder.shards)
    monkeypatch.setenv("XLM_SHARD_CACHE", str(tmp_path / "cache"))
    there = read_inputs(read(f"shards.storage={{url: '{(tmp_path / 'bucket').as_uri()}'}}"), folder, ONE)
    assert there.fingerprints == here.fingerprints
    for step, batches in zip((0, 12), wanted, strict=True):
        for found, one in zip(there.loader.batch(step), batches, strict=True):
            assert all(torch.equal(getattr(found, name), tensor) for name, tensor in vars(one).items() if name != "provenance")


def test_a_finished_training_is_recognised_by_what_it_was_made_from(run):
    read, folder = run
    inputs = read_inputs(read(), folder, ONE)
    fingerprints = stage_inputs(read(), inputs)
    assert fingerprints == stage_inputs(read("training.checkpoint.keep_last=7", "evaluation.seeds=[9]"), inputs)
    assert fingerprints != stage_inputs(read("training.optimizer.learning_rate=0.5"), inputs)
    # Spread in another way it would be the same training.
    assert fingerprints == stage_inputs(read("training.micro_batch_tokens=64", "training.activation_checkpointing=true"), inputs)


def test_a_finished_training_of_other_inputs_is_set_aside_and_an_unfinished_one_is_not(tmp_path, capsys):
    train = tmp_path / "train"
    train.mkdir()
    (train / "run.json").write_text("{}", encoding="utf-8")
    set_aside_finished(train)
    assert train.exists()
    for number in range(2):
        train.mkdir(exist_ok=True)
        (train / "number").write_text(str(number), encoding="utf-8")
        Stage(train, "train", {"made": "up"}).finish_in_place({}, 1.0, 1)
        set_aside_finished(train)
        assert not train.exists()
    kept = [(tmp_path / name / "number").read_text(encoding="utf-8") for name in (".train.old", ".train.old-2")]
    assert kept == ["0", "1"]
    assert "it is kept in" in capsys.readouterr().out


def test_checkpoints_that_nothing_describes_and_a_damaged_record_are_said(tmp_path):
    train = tmp_path / "train"
    check_started(train)
    (train / "checkpoints" / "step-00000004").mkdir(parents=True)
    with pytest.raises(UserError, match=r"here are checkpoints, and run\.json, .* is missing"):
        check_started(train)
    shutil.rmtree(train / "checkpoints")
    check_started(train)
    (train / "stage.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="record of a finished training is damaged; delete this file alone"):
        check_started(train)


def test_a_finished_training_without_its_last_checkpoint_is_open_again(tmp_path, capsys):
    train = tmp_path / "train"
    last = train / "checkpoints" / "step-00000004"
    last.mkdir(parents=True)
    (last / "complete.json").write_text(json.dumps({"step": 4, "files": {}}), encoding="utf-8")
    Stage(train, "train", {"made": "up"}).finish_in_place({"steps": 4}, 1.0, 1)
    reopen_finished(train, 4)
    assert (train / "stage.json").exists()
    shutil.rmtree(last)
    reopen_finished(train, 4)
    assert not (train / "stage.json").exists()
    assert "step-00000004: this checkpoint is missing. It goes on from" in capsys.readouterr().out


def test_aligned_embeddings_become_the_token_table(run):
    from xlm.training.assembly import build_engine

    read, folder = run
    recipe = read("embeddings={kind: aligned}", "training.precision=fp32")
    vocabulary = read_inputs(read(), folder, ONE).vocabulary
    table = np.random.default_rng(0).normal(size=(vocabulary.size, recipe.model.width)).astype(np.float32)
    with Stage(folder.embeddings, "embeddings", {"made": "up"}).write() as output:
        save_aligned(output.folder, table, vocabulary.fingerprint)
    inputs = read_inputs(recipe, folder, ONE)
    assert "embeddings" in inputs.fingerprints
    join_group(ONE, timeout_s=20)
    try:
        _, config = open_run(recipe, folder, inputs, ZERO2, ONE)
        engine = build_engine(recipe, inputs, config, ONE)
        weights = dict(engine.full_weights())
        np.testing.assert_array_equal(weights["encoder.embeddings.tokens.weight"].numpy(), table)
        assert parameter_count(engine) == sum(tensor.numel() for tensor in weights.values())
    finally:
        leave_group()


def test_a_slow_encoder_and_zero_stage_3_do_not_go_together(run):
    from xlm.training.assembly import build_engine

    read, folder = run
    recipe = read("training.contrastive={momentum: 0.9}")
    with pytest.raises(UserError, match="ZeRO stage 3 does not have"):
        build_engine(recipe, read_inputs(recipe, folder, ONE), {"zero_optimization": {"stage": 3}}, ONE)
