"""Operations are those of `training_flops`, peaks those of the makers, or a product that was timed."""

import pytest
import torch
from made_up_steps import MODEL, VOCABULARY, make_rows, pack

from xlm.model.flops import training_flops
from xlm.training.utilisation import Utilisation, peak_by_name, peak_flops

CPU = torch.device("cpu")


@pytest.mark.parametrize("attention", [{}, {"local_window": 4, "global_every": 2}])
def test_a_stretch_counts_what_the_formula_says(attention):
    config = MODEL.model_copy(update=attention)
    batches = [pack(make_rows(step)) for step in range(30)]
    counted = Utilisation(config, VOCABULARY, CPU, "fp32")
    counted.add(batches[:2])
    counted.add(batches[2:])
    wanted = sum(
        training_flops(config, VOCABULARY, batch.cu_seqlens.diff().tolist(), int(batch.predict_positions.numel())) for batch in batches
    )
    work = counted.take()
    assert work.flops == pytest.approx(wanted, abs=1e6)
    assert wanted > 5e7
    assert work.peak_flops > 1e8
    assert counted.take().flops == 0


def test_peaks_by_name():
    assert peak_by_name("NVIDIA H100 80GB HBM3", "bf16") == 989e12
    assert peak_by_name("NVIDIA H100 PCIe", "bf16") == 756e12
    assert peak_by_name("NVIDIA A100-SXM4-40GB", "fp32") == 19.5e12
    assert peak_by_name("NVIDIA L4", "bf16") == 121e12
    assert peak_by_name("NVIDIA L40", "bf16") is None  # a name is a whole word
    assert peak_by_name("NVIDIA A10G", "bf16") is None
    assert peak_by_name("Some GPU", "bf16") is None


def test_a_cpu_is_timed():
    assert 1e8 < peak_flops(CPU, "fp32") < 1e15
