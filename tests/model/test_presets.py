"""Presets against the published parameter counts (sources in each file)."""

import pytest
import torch

from xlm.errors import UserError
from xlm.model.presets import load_preset, preset_names
from xlm.model.pretraining import PretrainingModel

# Parameters of transformers' ...ForMaskedLM at the published vocabulary; RoBERTa's two position rows that
# are never used (2 * width) do not exist here.
PUBLISHED = {
    "bert-base": (30_522, 109_514_298),
    "bert-large": (30_522, 335_174_458),
    "roberta-base": (50_265, 124_697_433 - 2 * 768),
    "xlm-r-base": (250_002, 278_295_186 - 2 * 768),
    "xlm-r-large": (250_002, 560_142_482 - 2 * 1024),
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_parameter_counts(name, monkeypatch):
    vocabulary, parameters = PUBLISHED[name]
    monkeypatch.setattr("xlm.model.encoder.initialise_parameters", lambda *_, **__: None)
    monkeypatch.setattr("xlm.model.pretraining.initialise_parameters", lambda *_, **__: None)
    with torch.device("meta"):
        model = PretrainingModel(load_preset(name), vocabulary, 0)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_every_preset_loads():
    assert set(PUBLISHED) < set(preset_names())
    for name in preset_names():
        load_preset(name)


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'xlm-r-base'"):
        load_preset("xlmr-base")
