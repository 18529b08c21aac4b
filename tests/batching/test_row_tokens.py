import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xlm.batching.row_tokens import positions_within


@given(lengths=st.lists(st.integers(1, 20), max_size=12))
def test_positions_restart_in_every_sequence(lengths):
    found = positions_within(np.array(lengths, dtype=np.int64))
    assert found.tolist() == [place for length in lengths for place in range(length)]
