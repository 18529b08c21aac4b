import json

import pytest

from xlm.config.training import OptimizerSection, TrainingSection
from xlm.errors import UserError
from xlm.training.deepspeed_config import load_deepspeed_config
from xlm.training.offload import is_offloaded

CPU = {"device": "cpu"}


def load(tmp_path, zero, kind="adamw"):
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"zero_optimization": zero}), encoding="utf-8")
    training = TrainingSection(tokens_per_step=1024, micro_batch_tokens=256, optimizer=OptimizerSection(kind=kind, learning_rate=1e-3))
    return load_deepspeed_config(path, training, "fp32", micro_steps=2, world_size=2)


def test_what_is_offloaded_reaches_deepspeed(tmp_path):
    zero = load(tmp_path, {"stage": 3, "offload_optimizer": {**CPU, "pin_memory": False}, "offload_param": {"device": "none"}})[
        "zero_optimization"
    ]
    assert zero["offload_optimizer"] == {"device": "cpu", "pin_memory": False}
    assert is_offloaded(zero, "offload_optimizer")
    assert not is_offloaded(zero, "offload_param")


@pytest.mark.parametrize(
    ("zero", "message"),
    [
        ({"stage": 0, "offload_optimizer": CPU}, r"'zero_optimization.offload_optimizer' is for stage 1, 2 and 3, but the stage is 0"),
        ({"stage": 2, "offload_param": CPU}, r"'zero_optimization.offload_param' is for stage 3, but the stage is 2"),
        ({"stage": 2, "offload_optimizer": "cpu"}, r'offload_optimizer\' is "cpu"; allowed is an object like {"device": "cpu"}'),
        ({"stage": 2, "offload_optimizer": {"device": "gpu"}}, r'offload_optimizer.device\' is "gpu"; allowed are cpu and none'),
        ({"stage": 3, "offload_param": {"device": "nvme"}}, r"offload_param.device' is nvme, which is not supported: checkpoints are"),
        ({"stage": 2, "offload_optimizer": {**CPU, "pin_memry": 1}}, r"offload_optimizer.pin_memry' \(did you mean 'pin_memory'\?\)"),
        ({"stage": 2, "offload_optimizer": {**CPU, "pin_memory": 1}}, r"offload_optimizer.pin_memory' is 1; allowed is true or false"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, zero, message):
    with pytest.raises(UserError, match=message) as caught:
        load(tmp_path, zero)
    assert "\n" not in str(caught.value)


def test_optimizers_that_look_at_whole_tensors_are_not_offloaded(tmp_path):
    with pytest.raises(UserError, match=r"proved with training\.optimizer\.kind adamw alone, but the recipe's is lamb"):
        load(tmp_path, {"stage": 2, "offload_optimizer": CPU}, kind="lamb")
