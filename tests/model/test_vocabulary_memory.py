"""Cuts that lose nothing, and exponentials that are read before the gradient is written over them."""

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from xlm.model.vocabulary_memory import cut_predictions, cut_vocabulary, exponentials


@given(st.integers(0, 100), st.integers(0, 50), st.integers(1, 50))
def test_blocks_cover_the_predictions_and_keep_to_their_sizes(predictions, first, further):
    blocks = cut_predictions(predictions, first, further)
    assert [number for block in blocks for number in range(block.start, block.stop)] == list(range(predictions))
    sizes = [block.stop - block.start for block in blocks]
    assert all(size > 0 for size in sizes)
    assert all(size <= (first if block.start == 0 and first else further) for block, size in zip(blocks, sizes, strict=True))


def test_chunks_cover_the_vocabulary():
    for predictions in (1, 300, 100_000):
        chunks = cut_vocabulary(250_002, predictions, torch.device("cpu"))
        assert chunks[0].start == 0
        assert chunks[-1].stop == 250_002
        assert all(left.stop == right.start for left, right in pairwise(chunks))


@given(st.integers(1, 12), st.integers(1, 40), st.integers(1, 20), st.integers(1, 12), st.sampled_from([torch.float32, torch.bfloat16]))
def test_what_a_chunk_left_is_there_until_its_rows_are_written(predictions, vocabulary, width, piece_count, dtype):
    if width * dtype.itemsize % 4:
        width += 1
    gradient = torch.zeros(vocabulary, width, dtype=dtype)
    chunks = [slice(start, min(start + piece_count, vocabulary)) for start in range(0, vocabulary, piece_count)]
    places = exponentials(predictions, chunks, gradient, torch.empty(0))
    for number, place in enumerate(places):
        assert place.shape == (predictions, chunks[number].stop - chunks[number].start)
        place.fill_(number)
    for number in reversed(range(len(chunks))):
        assert bool((places[number] == number).all())
        gradient[chunks[number]] = -1
    beside = {place.untyped_storage().data_ptr(): place.untyped_storage().nbytes() for place in places}
    beside.pop(gradient.untyped_storage().data_ptr(), None)
    lent = width * dtype.itemsize // 4
    assert sum(beside.values()) <= 4 * (vocabulary * max(0, predictions - lent) + predictions * piece_count)
