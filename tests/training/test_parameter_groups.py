import pytest
from made_up_steps import COMPLETE, LANGUAGES, MODEL, VOCABULARY

from xlm.config.model import WidthScalingSection
from xlm.config.training import OptimizerSection
from xlm.model.pretraining import PretrainingModel
from xlm.training.parameter_groups import parameter_groups


def test_small_tables_do_not_decay_and_heads_do():
    model = PretrainingModel(COMPLETE, VOCABULARY, len(LANGUAGES))
    groups = parameter_groups(model, OptimizerSection(learning_rate=1.0, weight_decay=0.1))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decay = {names[id(parameter)]: group["weight_decay"] for group in groups for parameter in group["params"]}
    assert set(decay) == set(names.values())
    for table in ("positions", "token_types", "languages"):
        assert decay[f"encoder.embeddings.{table}.weight"] == 0.0
    for matrix in ("sentence_head.pooler.weight", "discriminator_head.score.weight", "generator.lm_head.dense.weight"):
        assert decay[matrix] == 0.1


def test_hidden_matrices_of_a_wider_model_learn_slower_and_everything_else_as_before():
    scaling = WidthScalingSection(base_width=8, base_heads=2)
    model = PretrainingModel(MODEL.model_copy(update={"width_scaling": scaling, "positions": "rotary"}), VOCABULARY, len(LANGUAGES))
    section = OptimizerSection(learning_rate=1.0, token_embedding_learning_rate_scale=0.5)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = parameter_groups(model, section)
    rates = {names[id(parameter)]: group["lr_scale"] for group in groups for parameter in group["params"]}
    # What a step takes off a weight is the rate times the decay: the same for hidden matrices as at the base's width.
    assert all(group["lr_scale"] * group["weight_decay"] == pytest.approx(0.01) for group in groups if group["name"] == "decayed")
    assert {group["eps"] for group in groups} == {section.epsilon / 2}
    slower = {name for name, rate in rates.items() if rate == 0.5 and "tokens" not in name}
    blocks = [f"encoder.blocks.{number}." for number in range(2)]
    parts = ["attention.qkv", "attention.output", "feed_forward.inner", "feed_forward.output"]
    assert slower == {f"{block}{part}.weight" for block in blocks for part in parts} | {"lm_head.dense.weight"}
    assert rates.pop("encoder.embeddings.tokens.weight") == 0.5
    assert all(rate == 1.0 for name, rate in rates.items() if name not in slower)


def test_no_decay_on_norms_biases_and_positions():
    model = PretrainingModel(MODEL, VOCABULARY, len(LANGUAGES))
    groups = {group["name"]: group for group in parameter_groups(model, OptimizerSection(learning_rate=1.0, weight_decay=0.1))}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    free = {names[id(parameter)] for parameter in groups["not_decayed"]["params"]}
    assert groups["not_decayed"]["weight_decay"] == 0.0
    assert groups["decayed"]["weight_decay"] == groups["token_embeddings"]["weight_decay"] == 0.1
    assert "encoder.embeddings.positions.weight" in free
    assert all(name in free for name in names.values() if name.endswith("bias") or "norm" in name)
    assert not any(name.endswith(("qkv.weight", "dense.weight", "tokens.weight")) for name in free)
    assert sum(len(group["params"]) for group in groups.values()) == len(names)
