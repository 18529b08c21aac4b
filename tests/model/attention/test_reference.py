"""The reference itself against torch's attention, one sequence at a time."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from tests.model.attention.examples import as_mask, boundaries, random_qkv
from xlm.model.attention import reference_attention


@pytest.mark.parametrize("reach", [None, 2])
@pytest.mark.parametrize("scale", [None, 0.9])
def test_it_is_what_torch_computes_for_each_sequence_alone(reach, scale):
    lengths, causal = [6, 1, 9, 4], [True, False, False, True]
    qkv = random_qkv(lengths, 12).detach()
    ours = reference_attention(qkv, boundaries(lengths), 3, causal=as_mask(causal), reach=reach, scale=scale)
    for part, own, one_sided in zip(qkv.split(lengths), ours.split(lengths), causal, strict=True):
        query, key, value = part.view(len(part), 3, 3, 4).permute(1, 2, 0, 3)
        seen = torch.ones(len(part), len(part), dtype=torch.bool)
        if one_sided:
            seen = seen.tril()
        if reach is not None:
            seen = seen.tril(reach).triu(-reach)
        alone = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=scale)
        torch.testing.assert_close(own, alone.transpose(0, 1).reshape(len(part), 12))
