from made_up_steps import LANGUAGES, MODEL, VOCABULARY

from xlm.config.recipe import OptimizerSection
from xlm.model.pretraining import PretrainingModel
from xlm.training.parameter_groups import parameter_groups


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
