import os
from pathlib import Path

import torch
from made_up_batches import made_up_batch, same_batches

from xlm.batching.shared_batches import receive, share


def open_descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_batches_come_out_as_they_went_in():
    for batches in ([], [made_up_batch(3)], [made_up_batch(1), made_up_batch(2, tokens=0), made_up_batch(5, tokens=1)]):
        found = receive(*share(batches))
        assert same_batches(found, batches)


def test_a_view_of_a_longer_column_travels_alone():
    whole = made_up_batch(1, tokens=100_000)
    part = type(whole)(**{name: value[:7] for name, value in vars(whole).items()})
    descriptor, description = share([part])
    assert os.fstat(descriptor).st_size < 2000
    assert same_batches(receive(descriptor, description), [part])


def test_received_tensors_can_be_written_and_outlive_the_descriptor():
    before = open_descriptors()
    (batch,) = receive(*share([made_up_batch(2)]))
    batch.input_ids.add_(1)
    assert torch.equal(batch.input_ids, made_up_batch(2).input_ids + 1)
    assert torch.equal(batch.labels, made_up_batch(2).labels)
    del batch
    assert open_descriptors() == before
