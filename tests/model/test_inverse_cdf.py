"""Draws from chunks, at the ends of the interval and where rounding leaves nothing."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from xlm.model.inverse_cdf import draw_chunks, draw_pieces


def test_a_piece_is_drawn_as_soon_as_the_sum_is_more_than_the_target():
    probabilities = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]]).expand(5, 5)
    assert draw_pieces(probabilities, torch.tensor([0.0, 0.2, 0.25, 0.9, 1.0], dtype=torch.float64)).tolist() == [1, 1, 3, 3, 3]


@given(st.lists(st.sampled_from([0.0, 1e-40, 1e-31, 1e-8, 0.1, 1.0]), min_size=1, max_size=9), st.sampled_from([0.0, 0.3, 1 - 2**-24]))
def test_a_chunk_with_mass_is_drawn_and_the_target_is_inside(masses, uniform):
    if max(masses) < 1e-30:
        return
    chosen, left = draw_chunks(torch.tensor([masses]), torch.tensor([uniform]))
    assert masses[int(chosen)] > 1e-30
    assert 0 <= float(left) <= masses[int(chosen)] * (1 + 1e-6)


def test_frequencies_are_the_probabilities():
    """In two steps, over chunks and then pieces, against numpy's choice of bins."""
    probabilities = torch.tensor([[0.1, 0.0, 0.2], [0.05, 0.3, 0.35]])
    uniforms = torch.linspace(0, 1, 10_001)[:-1]
    chosen, left = draw_chunks(probabilities.sum(1).expand(len(uniforms), 2), uniforms)
    drawn = 3 * chosen + draw_pieces(probabilities[chosen], left)
    expected = np.searchsorted(probabilities.ravel().double().cumsum(0).numpy(), uniforms.double().numpy(), side="right")
    assert (drawn.numpy() != expected).sum() <= 5  # A uniform on an edge may fall to either side.
    assert (np.bincount(drawn, minlength=6)[1]) == 0
