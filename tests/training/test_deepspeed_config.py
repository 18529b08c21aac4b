import json
from pathlib import Path

import pytest

from xlm.config.training import OptimizerSection, TrainingSection
from xlm.errors import UserError
from xlm.training.deepspeed_config import POSITIVE, SWITCHES, TOP_KEYS, ZERO_KEYS, load_deepspeed_config, zero_stage
from xlm.training.offload import OFFLOAD_KEYS, is_offloaded

CONFIGS = Path(__file__).parents[2] / "deepspeed_configs"
TRAINING = TrainingSection(
    tokens_per_step=1024, micro_batch_tokens=256, optimizer=OptimizerSection(learning_rate=1e-3), gradient_clipping=0.7
)


def load(tmp_path, content, precision="fp32"):
    path = tmp_path / "ds.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return load_deepspeed_config(path, TRAINING, precision, micro_steps=2, world_size=2)


def test_the_recipes_numbers_are_injected(tmp_path):
    config = load(tmp_path, {"zero_optimization": {"stage": 2}}, "bf16")
    assert config["gradient_accumulation_steps"] == 2
    assert config["train_batch_size"] == 4
    assert config["gradient_clipping"] == 0.7
    assert config["bf16"] == {"enabled": True}
    assert config["data_types"] == {"grad_accum_dtype": "fp32"}
    assert config["communication_data_type"] == "fp32"
    assert "optimizer" not in config
    assert zero_stage(config) == 2


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.name)
def test_the_files_beside_the_recipes_load(path):
    config = load_deepspeed_config(path, TRAINING, "fp32", micro_steps=1, world_size=2)
    assert zero_stage(config) == int(path.stem[len("zero")])
    assert is_offloaded(config["zero_optimization"], "offload_optimizer") == path.stem.endswith("_offload")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"zero_optimisation": {"stage": 1}}, r"unknown key 'zero_optimisation' \(did you mean 'zero_optimization'\?\)"),
        ({"zero_optimization": {"stage": 1, "reduce_bucket": 5}}, r"unknown key 'zero_optimization.reduce_bucket'"),
        ({"gradient_clipping": 1.0}, r"'gradient_clipping' is 1.0 here but 0.7 by the recipe's training.gradient_clipping"),
        ({"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}}, r"'optimizer.params.lr' is 0.1 here but 0.001"),
        ({"bf16": {"enabled": True}}, r"'bf16.enabled' is True here but False by the recipe's training.precision \(fp32\)"),
        ({"train_batch_size": 64}, r"'train_batch_size' is 64 here but 4"),
        ({"scheduler": {"type": "WarmupLR"}}, r"'scheduler' belongs to the recipe"),
        ({"zero_optimization": {"stage": 7}}, r"stage is 7; allowed are 0, 1, 2 and 3"),
        ({"zero_optimization": {"stage": True}}, r"stage is True"),
        ({"zero_optimization": 2}, r"JSON object is expected"),
        ({"zero_optimization": {"stage": "2"}}, r"stage is '2'; allowed are 0, 1, 2 and 3"),
        (
            {"zero_optimization": {"reduce_bucket_size": "x"}},
            r'ds.json: \'zero_optimization.reduce_bucket_size\' is "x"; allowed is a whole n',
        ),
        ({"zero_optimization": {"allgather_bucket_size": -1}}, r"allgather_bucket_size' is -1; allowed is a whole number from 0 on"),
        ({"zero_optimization": {"sub_group_size": 1.5}}, r"sub_group_size' is 1.5; allowed is a whole number"),
        ({"zero_optimization": {"sub_group_size": True}}, r"sub_group_size' is true; allowed is a whole number"),
        ({"zero_optimization": {"stage3_max_live_parameters": None}}, r"max_live_parameters' is null; allowed is a whole number"),
        ('{"zero_optimization": {"sub_group_size": NaN}}', r"sub_group_size' is NaN; allowed is a whole number"),
        ('{"zero_optimization": {"sub_group_size": 1e999}}', r"sub_group_size' is Infinity; allowed is a whole number"),
        ({"zero_optimization": {"overlap_comm": "no"}}, r'overlap_comm\' is "no"; allowed is true or false'),
        ({"zero_optimization": {"reduce_scatter": 1}}, r"reduce_scatter' is 1; allowed is true or false"),
        ({"wall_clock_breakdown": []}, r"'wall_clock_breakdown' is \[\]; allowed is true or false"),
        ({"steps_per_print": 0}, r"'steps_per_print' is 0; allowed is a whole number from 1 on"),
        ({"fp16": {"auto_cast": True}}, r"unknown key 'fp16.auto_cast'; the recipe owns this section"),
        ({"bf16": {"enable": True}}, r"unknown key 'bf16.enable' \(did you mean 'enabled'\?\)"),
        ({"activation_checkpointing": {}}, r"'activation_checkpointing' belongs to the recipe \(training.activation_checkpointing\)"),
        ({"bf16": True}, r"'bf16' is true; allowed is a JSON object"),
        ({"optimizer": {"params": 3}}, r"'optimizer.params' is 3; allowed is a JSON object"),
        ('{"zero_optimization": \n oops}', r"ds.json:2: not valid JSON"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, content, message):
    with pytest.raises(UserError, match=message) as caught:
        load(tmp_path, content)
    assert "\n" not in str(caught.value)


def test_agreeing_and_auto_values_are_allowed(tmp_path):
    load(tmp_path, {"gradient_clipping": 0.7, "train_batch_size": "auto", "optimizer": {"params": {"lr": 1e-3}}})


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_16_bits_at_stage_0_are_refused(tmp_path, precision):
    with pytest.raises(UserError, match=f"{precision} needs ZeRO stage 1"):
        load(tmp_path, {}, precision)


def test_fp16_brings_the_recipes_loss_scale(tmp_path):
    config = load(tmp_path, {"zero_optimization": {"stage": 2}, "fp16": {"enabled": True, "initial_scale_power": 16}}, "fp16")
    scale = {"loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000, "hysteresis": 1, "min_loss_scale": 1}
    assert config["fp16"] == {"enabled": True, **scale}
    assert config["data_types"] == {"grad_accum_dtype": "fp32"}
    with pytest.raises(UserError, match=r"'fp16.initial_scale_power' is 8 here but 16 by the recipe's training.loss_scale.initial_power"):
        load(tmp_path, {"zero_optimization": {"stage": 2}, "fp16": {"initial_scale_power": 8}}, "fp16")


def test_a_missing_file_names_the_folder(tmp_path):
    with pytest.raises(UserError, match="does not exist; deepspeed_configs/"):
        load_deepspeed_config(tmp_path / "no.json", TRAINING, "fp32", micro_steps=1, world_size=1)


def test_a_bucket_may_be_written_as_in_deepspeeds_documentation(tmp_path):
    assert (
        load(tmp_path, '{"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8}}')["zero_optimization"]["reduce_bucket_size"] == 5e8
    )


def test_every_known_key_has_one_type(tmp_path):
    assert {*TOP_KEYS, *ZERO_KEYS} >= {*SWITCHES, *POSITIVE}
    for key in (*TOP_KEYS[1:], *(key for key in ZERO_KEYS[1:] if key not in OFFLOAD_KEYS)):
        good, bad = (True, 1) if key in SWITCHES else (1, True)
        nest = (lambda value, key=key: {key: value}) if key in TOP_KEYS else (lambda value, key=key: {"zero_optimization": {key: value}})
        load(tmp_path, nest(good))
        with pytest.raises(UserError, match=key):
            load(tmp_path, nest(bad))
