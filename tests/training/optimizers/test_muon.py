import pytest
import torch

from xlm.training.optimizers.muon import Muon, orthogonalised


def matrix(rows, columns, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(12, 12), (20, 6), (6, 20)])
def test_singular_vectors_stay_and_values_come_near_one(shape):
    given = matrix(*shape)
    found = orthogonalised(given)
    left, _, right = torch.linalg.svd(given, full_matrices=False)
    values = left.T @ found @ right.T
    off = values - torch.diag(values.diagonal())
    assert off.abs().max() < 1e-4
    assert values.diagonal().min() > 0.4
    assert values.diagonal().max() < 1.3


def run(optimizer, parameter, steps=4):
    for step in range(steps):
        parameter.grad = matrix(*parameter.shape, seed=step + 1)
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("shape", [(12, 12), (20, 6), (6, 20)])
def test_is_torch_muon_with_steps_of_adamw_within_bf16(shape):
    # torch multiplies in bf16 always.
    options = {"lr": 0.02, "weight_decay": 0.1}
    theirs = torch.nn.Parameter(matrix(*shape))
    run(torch.optim.Muon([theirs], momentum=0.95, adjust_lr_fn="match_rms_adamw", **options), theirs)
    ours, exact = torch.nn.Parameter(matrix(*shape)), torch.nn.Parameter(matrix(*shape))
    own = {"betas": (0.9, 0.98), "eps": 1e-6, "momentum": 0.95}
    for parameter, dtype in ((ours, torch.bfloat16), (exact, torch.float32)):
        group = {"params": [parameter], "blocks": 1, "weight_decay": options["weight_decay"]}
        run(Muon([group], lr=options["lr"], dtype=dtype, **own), parameter)
    moved = (theirs.detach() - matrix(*shape)).norm()
    assert (ours - theirs).norm() < 0.02 * moved
    assert (exact - theirs).norm() < 0.03 * moved


def test_blocks_of_rows_are_matrices_of_their_own():
    together, options = torch.nn.Parameter(matrix(12, 5)), {"lr": 0.1, "betas": (0.9, 0.98), "eps": 1e-6, "momentum": 0.95}
    apart = [torch.nn.Parameter(block.clone()) for block in matrix(12, 5).split(4)]
    optimizers = [Muon([{"params": [together], "blocks": 3}], **options), Muon([{"params": apart, "blocks": 1}], **options)]
    for step in range(3):
        together.grad = matrix(12, 5, seed=step + 5)
        for parameter, gradient in zip(apart, together.grad.split(4), strict=True):
            parameter.grad = gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(together, torch.cat(apart))


def test_what_is_no_hidden_matrix_is_adamws():
    options = {"lr": 0.1, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.1}
    ours, theirs = torch.nn.Parameter(matrix(3, 5)), torch.nn.Parameter(matrix(3, 5))
    weight_decay = options.pop("weight_decay")
    group = {"params": [ours], "weight_decay": weight_decay}
    wanted = run(torch.optim.AdamW([theirs], weight_decay=weight_decay, fused=True, **options), theirs)
    assert torch.equal(run(Muon([group], momentum=0.95, **options), ours), wanted)
