"""Groups: little padding, every token once, masks only where something is hidden."""

import numpy as np
import pytest
import torch

from tests.model.attention.examples import boundaries
from xlm.model.attention.groups import GROUP_SCORES, build_group, hidden_keys, length_groups


def random_lengths():
    generator = torch.Generator().manual_seed(0)
    return torch.randint(5, 41, (300,), generator=generator).numpy()


def test_padding_stays_small_and_scores_fit():
    lengths = random_lengths()
    groups = length_groups(lengths, np.arange(300), 4)
    assert sorted(np.concatenate(groups).tolist()) == list(range(300))
    slots = sum(len(members) * lengths[members].max() for members in groups)
    assert slots <= lengths.sum() / 0.8
    assert all(len(members) * 4 * lengths[members].max() ** 2 <= GROUP_SCORES for members in groups)
    assert len(length_groups(lengths, np.arange(300), 4, most_scores=None)) <= len(groups)


def test_every_row_is_read_and_written_once_and_padding_goes_behind_the_last():
    lengths, heads = random_lengths(), 3
    bounds = boundaries(lengths.tolist()).numpy().astype(np.int64)
    causal = np.zeros(300, dtype=bool)
    groups = [
        build_group(bounds, members, heads, causal, None, torch.device("cpu")) for members in length_groups(lengths, np.arange(300), heads)
    ]
    tokens = int(bounds[-1])
    for part, last in (("write", 3 * heads * tokens), ("write_output", heads * tokens)):
        written = torch.cat([getattr(group, part) for group in groups])
        assert torch.equal(written[written < last].sort().values, torch.arange(last))
        assert int(written.max()) == last
        read = torch.cat([getattr(group, part.replace("write", "read")) for group in groups])
        assert torch.equal(read[written < last], written[written < last])
        assert int(read.max()) < last


@pytest.mark.parametrize("reach", [None, 0, 3, 100])
def test_hidden_keys_by_brute_force(reach):
    lengths, causal = np.array([7, 9, 8, 9]), np.array([True, False, False, True])
    hidden = hidden_keys(lengths, causal, reach)
    for number, length in enumerate(lengths):
        for query in range(length):
            for key in range(9):
                seen = key < length and not (causal[number] and key > query) and (reach is None or abs(query - key) <= reach)
                assert hidden[number, query, key] == (not seen)
        assert (~hidden[number]).any(axis=1).all()  # a padded query sees something, or its softmax is not a number


def test_equal_lengths_need_no_mask_or_one_for_all():
    equal = np.array([16] * 8)
    assert hidden_keys(equal, np.zeros(8, dtype=bool), None) is None
    assert hidden_keys(equal, np.zeros(8, dtype=bool), 15) is None
    assert hidden_keys(equal, np.ones(8, dtype=bool), None).shape == (1, 16, 16)
    assert hidden_keys(np.array([15, 16]), np.zeros(2, dtype=bool), None).shape == (2, 1, 16)
