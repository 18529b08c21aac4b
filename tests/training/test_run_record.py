import dataclasses
import re

import pytest

from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.training.run_record import (
    RunRecord,
    check_same_run,
    layout_note,
    read_run_record,
    recipe_fingerprint,
    training_recipe,
    with_start,
    write_run_record,
)

RECIPE = {
    "name": "r",
    "seed": 1,
    "corpora": {"manifest": "m.yaml"},
    "vocabulary": "v.yaml",
    "embeddings": {"kind": "random"},
    "model": {"width": 8, "layers": 1, "heads": 1, "feed_forward": 8, "max_positions": 8},
    "phases": [
        {
            "name": "p",
            "steps": 5,
            "sequence_length": 8,
            "sampling": {"kind": "temperature", "alpha": 1},
            "objectives": {"mlm": {"share": 1}},
        }
    ],
    "training": {"tokens_per_step": 64, "micro_batch_tokens": 64, "optimizer": {"learning_rate": 0.1}},
}


def recipe(**training):
    return Recipe.model_validate({**RECIPE, "training": {**RECIPE["training"], **training}})


def in_windows():
    return Recipe.model_validate({**RECIPE, "shards": {"shuffle_window": 4}})


def deepspeed(stage=2, micro_steps=4, world_size=2, **others):
    batch = {"gradient_accumulation_steps": micro_steps, "train_batch_size": micro_steps * world_size}
    return {"zero_optimization": {"stage": stage}, "gradient_clipping": 1.0, **batch, **others}


def record(of=None, **changes):
    made = RunRecord(
        recipe=training_recipe(of or recipe()),
        recipe_fingerprint=recipe_fingerprint(of or recipe()),
        deepspeed=deepspeed(),
        precision="fp32",
        world_size=2,
        inputs={"shards": "aaa", "vocabulary": "bbb"},
        languages=("en", "de"),
        tracking_key="key",
        code="code",
        versions={"torch": "2"},
    )
    return dataclasses.replace(made, **changes)


def test_a_record_reads_back_and_still_matches(tmp_path):
    assert read_run_record(tmp_path) is None
    write_run_record(tmp_path, record())
    check_same_run(read_run_record(tmp_path), record(), tmp_path)


def test_what_may_change_within_a_run(tmp_path):
    write_run_record(tmp_path, record())
    other = recipe(checkpoint={"every_steps": 3, "keep_last": 1}, loader={"workers": 3}, process_group_timeout_s=20)
    check_same_run(read_run_record(tmp_path), record(other), tmp_path)


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (record(recipe(optimizer={"learning_rate": 0.2})), r"training\.optimizer\.learning_rate = 0\.1, the recipe now says 0\.2"),
        (record(recipe(tokens_per_step=128)), r"training\.tokens_per_step = 64, the recipe now says 128"),
        (record(in_windows()), r"shards\.shuffle_window = None, the recipe now says 4"),
        (record(inputs={"shards": "zzz", "vocabulary": "bbb"}), "started with shards aaa, now it is zzz"),
        (record(inputs={"shards": "aaa", "vocabulary": "bbb", "embeddings": "e"}), "embeddings None, now it is e"),
        (record(deepspeed=deepspeed(gradient_clipping=2.0)), r"DeepSpeed's gradient_clipping = 1\.0, now it is 2\.0"),
    ],
)
def test_the_first_difference_is_one_sentence(tmp_path, wanted, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        check_same_run(record(), wanted, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "note"),
    [
        (record(), None),
        (record(deepspeed=deepspeed(steps_per_print=3)), None),
        (record(world_size=1, deepspeed=deepspeed(0, 8, 1)), "from 2 ranks at ZeRO stage 2 to 1 rank at ZeRO stage 0"),
        (record(deepspeed=deepspeed(1)), "from 2 ranks at ZeRO stage 2 to 2 ranks at ZeRO stage 1"),
        (
            record(deepspeed=deepspeed(zero_optimization={"stage": 2, "reduce_bucket_size": 7})),
            "goes on with another zero_optimization.reduce_bucket_size:",
        ),
        (
            record(recipe(micro_batch_tokens=32), world_size=1),
            "from 2 ranks at ZeRO stage 2 to 1 rank at ZeRO stage 2 and with another training.micro_batch_tokens:",
        ),
    ],
)
def test_ranks_and_stages_may_change_and_it_is_said(tmp_path, wanted, note):
    check_same_run(record(), wanted, tmp_path)
    said = layout_note(record(), wanted)
    assert said is None if note is None else re.search(note, said)


def test_ranks_and_stage_of_every_start_are_kept_and_are_no_change_of_code(tmp_path):
    start(tmp_path)
    last = start(tmp_path, world_size=1, deepspeed=deepspeed(3))
    assert [(one["world_size"], one["zero_stage"]) for one in last.starts] == [(2, 2), (1, 3)]
    assert not last.code_changed


def test_a_damaged_record_says_what_to_do(tmp_path):
    (tmp_path / "run.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="delete its folder to train anew"):
        read_run_record(tmp_path)


def start(tmp_path, **changes):
    made = with_start(record(**changes), read_run_record(tmp_path))
    write_run_record(tmp_path, made)
    return made


def test_code_and_versions_of_every_start_are_kept(tmp_path):
    assert not start(tmp_path).code_changed
    assert not start(tmp_path).code_changed
    assert start(tmp_path, code="other").code_changed
    last = start(tmp_path, versions={"torch": "3"})
    assert last.code_changed
    kept = read_run_record(tmp_path).starts
    assert [one["code"] for one in kept] == ["code", "code", "other", "code"]
    assert [one["versions"]["torch"] for one in kept] == ["2", "2", "2", "3"]


def test_a_change_that_was_taken_back_still_happened(tmp_path):
    for code in ("code", "other", "code"):
        last = start(tmp_path, code=code)
    assert last.code_changed


def test_a_record_from_before_starts_were_kept_counts_as_one_start(tmp_path):
    write_run_record(tmp_path, record(code="old"))
    assert [one["code"] for one in start(tmp_path).starts] == ["old", "code"]
