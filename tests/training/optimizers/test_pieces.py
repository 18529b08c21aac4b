import math

import pytest
import torch

from xlm.training.optimizers.pieces import part_of_each, run_of_each

SHAPES = [(3, 4), (5,), (1, 1), (7, 2)]


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_pieces_of_all_ranks_put_every_parameter_together_once(world_size):
    sizes = [math.prod(shape) for shape in SHAPES]
    # Stages 1 and 2: the parameters end to end, aligned to 4, the last partition padded.
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += size + (-size) % 4
    partition = -(-end // world_size)
    flat = torch.full((partition * world_size,), -1.0)
    for number, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        flat[offset : offset + size] = 100 * number + torch.arange(size)
    runs = [run_of_each(SHAPES, offsets, partition, rank) for rank in range(world_size)]
    assert_put_together(runs, list(flat.split(partition)))
    # Stage 3: every parameter cut in equal parts, the last padded.
    parts = [-(-size // world_size) for size in sizes]
    flats = [torch.full((sum(parts),), -1.0) for _ in range(world_size)]
    for number, (size, part) in enumerate(zip(sizes, parts, strict=True)):
        padded = torch.cat([100 * number + torch.arange(size), torch.full((part * world_size - size,), -1.0)])
        for rank in range(world_size):
            flats[rank][sum(parts[:number]) : sum(parts[: number + 1])] = padded[rank * part : (rank + 1) * part]
    assert_put_together([part_of_each(SHAPES, parts, rank, world_size) for rank in range(world_size)], flats)


def assert_put_together(pieces_by_rank, flats):
    for number, shape in enumerate(SHAPES):
        found = torch.full((math.prod(shape),), torch.nan)
        holders = 0
        for pieces, flat in zip(pieces_by_rank, flats, strict=True):
            piece = pieces[number]
            assert piece.shape == shape
            assert torch.isnan(found[piece.start : piece.stop]).all()
            found[piece.start : piece.stop] = piece.of(flat)
            holders += piece.stop > piece.start
        assert torch.equal(found, 100.0 * number + torch.arange(math.prod(shape)))
        assert all(pieces[number].shared for pieces in pieces_by_rank) or holders == 1
