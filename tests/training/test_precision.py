import pytest
import torch

from xlm.errors import UserError
from xlm.training.precision import check_supported, evaluation_precision, keep_precision, resolve_precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [({"avx512_bf16": True}, "bf16"), ({"amx_bf16": True}, "bf16"), ({"avx512_bf16": False, "avx2": True}, "fp32"), ({}, "fp32")],
)
def test_auto_on_a_cpu_follows_its_instructions(monkeypatch, capabilities, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert resolve_precision("auto", CPU) == expected


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), "fp32"), ((8, 0), "bf16"), ((9, 0), "bf16")])
def test_auto_on_cuda_follows_the_compute_capability(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert resolve_precision("auto", torch.device("cuda", 0)) == expected


def test_what_is_asked_for_is_taken():
    assert resolve_precision("fp32", CPU) == "fp32"
    assert resolve_precision("bf16", CPU) == "bf16"
    assert resolve_precision("fp16", CPU) == "fp16"


def test_a_resumed_run_keeps_its_precision():
    assert keep_precision("auto", "bf16") == "bf16"
    assert keep_precision("fp32", "fp32") == "fp32"
    with pytest.raises(UserError, match=r"asks for training\.precision fp32 .* started in bf16"):
        keep_precision("fp32", "bf16")


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_16_bits_without_zero_are_one_sentence(precision):
    with pytest.raises(UserError, match=f"{precision} needs ZeRO stage 1 or higher.*or training.precision to fp32"):
        check_supported(0, precision)


def test_what_is_supported_passes():
    check_supported(0, "fp32")
    check_supported(2, "bf16")
    with pytest.raises(UserError, match="allowed stages are"):
        check_supported(4, "fp32")


@pytest.mark.parametrize(
    ("trained_in", "capabilities", "expected"),
    [("bf16", {"amx_bf16": True}, "bf16"), ("bf16", {}, "fp32"), ("fp32", {"amx_bf16": True}, "fp32"), ("fp32", {}, "fp32")],
)
def test_scores_are_made_in_the_precision_of_training_where_the_device_has_it(monkeypatch, trained_in, capabilities, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert evaluation_precision(trained_in, CPU) == expected
