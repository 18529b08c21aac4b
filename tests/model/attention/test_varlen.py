"""The CUDA paths with stand-ins that have the kernels' signatures and the reference's arithmetic."""

import sys
import types

import pytest
import torch

from tests.model.attention.examples import as_mask, boundaries, outputs_and_gradients, random_qkv
from xlm.model.attention import plan_attention, reference_attention, varlen
from xlm.model.attention.weight_dropout import WeightDropout

LENGTHS = [5, 0, 17, 1, 30, 17]
MIXED = [True, False, False, True, True, False]


def by_reference(qkv, cu_seqlens, scale, causal, window):
    """Compute what a kernel does from its own arguments; a window is (left, right), -1 for all."""
    assert cu_seqlens.dtype == torch.int32
    left, right = window
    assert right == (0 if causal else left)
    tokens, _, heads, head_width = qkv.shape
    mask = torch.full((len(cu_seqlens) - 1,), causal)
    flat = qkv.reshape(tokens, 3 * heads * head_width)
    reach = None if left < 0 else left
    return reference_attention(flat, cu_seqlens, heads, causal=mask, reach=reach, scale=scale).view(tokens, heads, head_width)


@pytest.fixture(autouse=True)
def looked_for_anew():
    """What one test has installed is not what the next one finds."""
    varlen.installed.cache_clear()
    yield
    varlen.installed.cache_clear()


class Calls(list):
    """Arguments of each call of a stand-in."""


@pytest.fixture
def flash_attn(monkeypatch):
    calls = Calls()

    def flash_attn_varlen_qkvpacked_func(
        qkv, cu_seqlens, max_seqlen, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, deterministic=False
    ):
        assert int(cu_seqlens.diff().max()) == max_seqlen
        calls.append({"causal": causal, "window_size": window_size, "dropout_p": dropout_p, "drawn": torch.rand(1).item()})
        return by_reference(qkv, cu_seqlens, softmax_scale, causal, window_size)

    monkeypatch.setitem(sys.modules, "flash_attn", types.SimpleNamespace(flash_attn_varlen_qkvpacked_func=flash_attn_varlen_qkvpacked_func))
    return calls


@pytest.fixture
def no_flash_attn(monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_attn", None)


@pytest.fixture(params=["windows and scale", "neither"])
def torch_varlen(request, monkeypatch, no_flash_attn):
    calls = Calls()

    def now(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None, window_size=(-1, -1)):
        assert torch.equal(cu_seq_q, cu_seq_k)
        assert max_q == max_k == int(cu_seq_q.diff().max())
        causal = window_size[1] == 0 and window_size[0] != 0
        calls.append({"causal": causal, "window_size": window_size})
        return by_reference(torch.stack([query, key, value], 1), cu_seq_q, scale, causal, window_size)

    def first(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False, return_aux=None):
        calls.append({"causal": is_causal})
        return by_reference(torch.stack([query, key, value], 1), cu_seq_q, None, is_causal, (-1, 0 if is_causal else -1))

    function = now if request.param == "windows and scale" else first
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", function)
    return calls


def compare(causal, reach, scale=0.4):
    """Hold bf16 attention with 8-wide heads against the reference in fp32."""
    qkv = random_qkv(LENGTHS, 16, torch.bfloat16)
    mask = None if causal is None else as_mask(causal)
    plan = plan_attention(boundaries(LENGTHS), 2, causal=mask, reach=reach)
    ours = outputs_and_gradients(lambda x: varlen.attend_varlen(x, plan, scale, None), qkv)
    exact_input = qkv.detach().float().requires_grad_()
    exact = outputs_and_gradients(
        lambda x: reference_attention(x, boundaries(LENGTHS), 2, causal=mask, reach=reach, scale=scale), exact_input
    )
    for mine, true in zip(ours, exact, strict=True):
        assert mine.dtype == torch.bfloat16
        assert (mine.float() - true).norm() / true.norm() < 0.02


CASES = [(None, None), ([True] * 6, None), (MIXED, None), (None, 4), (MIXED, 4)]


@pytest.mark.parametrize(("causal", "reach"), CASES)
def test_flash_attn_gets_the_arguments_it_documents(flash_attn, causal, reach):
    compare(causal, reach)
    left = -1 if reach is None else reach
    kinds = [False, True] if causal == MIXED else [causal is not None]
    assert [(call["causal"], call["window_size"]) for call in flash_attn] == [(kind, (left, 0 if kind else left)) for kind in kinds]
    assert all(call["dropout_p"] == 0.0 for call in flash_attn)


@pytest.mark.parametrize(("causal", "reach"), CASES)
def test_torch_varlen_gets_the_arguments_of_its_version(torch_varlen, causal, reach, request):
    compare(causal, reach)
    if reach is not None and "neither" in request.node.name:
        assert torch_varlen == []  # no windows there: the products serve
    else:
        assert [call["causal"] for call in torch_varlen] == ([False, True] if causal == MIXED else [causal is not None])


def test_flash_attn_is_taken_before_torchs(flash_attn, monkeypatch):
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", None)
    compare(None, None)
    assert len(flash_attn) == 1


def test_flash_attn_drops_by_the_key_and_leaves_the_generator_alone(flash_attn):
    qkv, plan = random_qkv(LENGTHS, 16, torch.bfloat16), plan_attention(boundaries(LENGTHS), 2, causal=as_mask(MIXED))
    state = torch.get_rng_state()
    for seed in (7, 7, 8):
        varlen.attend_varlen(qkv, plan, 1.0, WeightDropout(0.1, seed))
    assert torch.equal(torch.get_rng_state(), state)
    drawn = [call["drawn"] for call in flash_attn]
    assert drawn[:2] == drawn[2:4] != drawn[4:]
    assert drawn[0] != drawn[1]
    assert all(call["dropout_p"] == 0.1 for call in flash_attn)


@pytest.mark.parametrize(("dtype", "head_width"), [(torch.float32, 8), (torch.bfloat16, 4), (torch.bfloat16, 264)])
def test_what_the_kernels_cannot_do_goes_through_torchs_fused_attention(flash_attn, dtype, head_width):
    lengths = [3, 9, 5]
    qkv = random_qkv(lengths, head_width, dtype)
    output = varlen.attend_varlen(qkv, plan_attention(boundaries(lengths), 1), 0.5, None)
    exact = reference_attention(qkv.detach().float(), boundaries(lengths), 1, scale=0.5)
    assert (output.float() - exact).norm() / exact.norm() < 0.02
    assert flash_attn == []


def test_torch_alone_drops_through_products(torch_varlen):
    qkv, plan = random_qkv(LENGTHS, 16, torch.bfloat16), plan_attention(boundaries(LENGTHS), 2)
    once, twice = (varlen.attend_varlen(qkv, plan, 1.0, WeightDropout(0.5, 3)) for _ in range(2))
    assert torch.equal(once, twice)
    assert not torch.allclose(once.float(), varlen.attend_varlen(qkv, plan, 1.0, None).float(), atol=0.1)


def test_parts_cover_the_tokens_of_their_kind():
    whole = varlen.parts_of(plan_attention(boundaries([3, 4]), 2, causal=as_mask([True, True])))
    assert [(part.tokens, part.causal, part.longest) for part in whole] == [(None, True, 4)]
    both, one_sided = varlen.parts_of(plan_attention(boundaries([3, 4, 2]), 2, causal=as_mask([False, True, False])))
    assert (both.tokens.tolist(), both.cu_seqlens.tolist(), both.causal) == ([0, 1, 2, 7, 8], [0, 3, 5], False)
    assert (one_sided.tokens.tolist(), one_sided.cu_seqlens.tolist(), one_sided.causal) == ([3, 4, 5, 6], [0, 4], True)


def test_an_empty_sequence_of_the_other_kind_makes_no_second_call():
    (part,) = varlen.parts_of(plan_attention(boundaries([3, 0]), 2, causal=as_mask([False, True])))
    assert (part.tokens, part.causal) == (None, False)


def test_a_kernel_that_is_missing_is_looked_for_once(no_flash_attn, monkeypatch):
    del no_flash_attn
    asked = []
    real = varlen.importlib.import_module
    monkeypatch.setattr(varlen.importlib, "import_module", lambda name: asked.append(name) or real(name))
    qkv = random_qkv([3, 4], 8, torch.bfloat16)
    for _ in range(3):
        varlen.attend_varlen(qkv, plan_attention(boundaries([3, 4]), 1), 1.0, WeightDropout(0.1, 0))
    assert sorted(asked) == ["flash_attn", "torch.nn.attention.varlen"]
