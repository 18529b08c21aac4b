"""The language-model head."""

import torch
import torch.nn.functional as F  # noqa: N812

from xlm.config.model import ModelConfig
from xlm.model.heads import LanguageModelHead
from xlm.model.initialisation import initialise_parameters

CONFIG = ModelConfig(width=8, layers=1, heads=2, feed_forward=8, max_positions=4, norm_epsilon=1e-5)


def test_follows_its_formula():
    head = LanguageModelHead(CONFIG, 11)
    initialise_parameters(head, CONFIG.model_copy(update={"initializer_range": 1.0}), seed=1)
    hidden = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    inner = F.gelu(hidden @ head.dense.weight.T + head.dense.bias)
    centred = inner - inner.mean(-1, keepdim=True)
    expected = centred / (inner.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(head(hidden), expected, atol=1e-6, rtol=1e-5)


def test_a_tied_head_owns_no_table():
    assert "weight" not in LanguageModelHead(CONFIG, 11).state_dict()
    free = LanguageModelHead(CONFIG.model_copy(update={"tied_output": False}), 11)
    assert free.state_dict()["weight"].shape == (11, 8)
