"""A table that is read twice: by the lookup of the input and by the vocabulary projection.

As an ordinary parameter it would get two dense gradients of [V, d] to add up, one of them almost all zeros. Here the
lookup's gradient stays as the rows it has, and is added into the projection's dense one where that lies.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd.function import once_differentiable


def share_table(weight: Tensor, standing: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return ``weight`` [V, d] for `look_up`, and for the projection; what receives the whole gradient is ``weight``.

    With ``standing`` [V, d], a gradient of earlier batches, everything is added to that instead, and ``weight`` gets none.

    The projection's gradient is changed in place: give that output to one kind of reader, `vocabulary_loss` or a
    product, and not to a sum, whose gradient would be shared with the other term.
    """
    lookup, projection = _SharedTable.apply(weight, standing)  # type: ignore[no-untyped-call]
    return lookup, projection


def look_up(table_for_lookup: Tensor, ids: Tensor) -> Tensor:
    """Return the rows [T, d] of ``ids`` [T]; their gradient is sparse, so the table has to come from `share_table`."""
    return F.embedding(ids, table_for_lookup, sparse=True)


class _SharedTable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, standing: Tensor | None) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        ctx.set_materialize_grads(False)
        ctx.standing = standing
        return weight.view_as(weight), weight.view_as(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, lookup: Tensor | None, projection: Tensor | None) -> tuple[Tensor | None, None]:  # noqa: ANN401
        if ctx.standing is not None:
            if projection is not None:
                ctx.standing.add_(projection)
            if lookup is not None:
                _add_rows(ctx.standing, lookup._indices()[0], lookup._values())
            return None, None
        if lookup is None:
            return projection, None
        if projection is None:
            projection = torch.zeros(lookup.shape, dtype=lookup.dtype, device=lookup.device)
        # The gradient of a plain sum is one number seen everywhere.
        dense = projection.contiguous()
        _add_rows(dense, lookup._indices()[0], lookup._values())
        return dense, None


def _add_rows(dense: Tensor, ids: Tensor, rows: Tensor) -> None:
    """Add ``rows`` [n, d] to those of ``dense`` [V, d] in a fixed order; ids that repeat add up in fp32 before rounding."""
    if dense.dtype.itemsize < torch.float32.itemsize:
        ids, place = torch.unique(ids, return_inverse=True)
        sums = torch.zeros(len(ids), dense.shape[1], dtype=torch.float32, device=dense.device)
        _accumulate(sums, place, rows.to(torch.float32))
        dense[ids] = (dense[ids] + sums).to(dense.dtype)
    else:
        _accumulate(dense, ids, rows)


def _accumulate(dense: Tensor, ids: Tensor, rows: Tensor) -> None:
    if dense.device.type == "cpu":
        dense.index_add_(0, ids, rows)
    else:  # There `index_add_` adds repeated rows in any order.
        dense.index_put_((ids,), rows, accumulate=True)
