from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xlm.batching.arrangement import Arrangement, lay_out
from xlm.batching.texts import RowTexts

TEXT = st.lists(st.integers(5, 99), max_size=6)


@given(segments=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6), data=st.data())
def test_any_arrangement_is_laid_out_as_written(segments, data):
    sides = [[np.array(text, dtype=np.uint16) for text in side] for side in zip(*segments, strict=True)]
    texts = RowTexts.of(sides, [3, 4], [len(segments)])
    flat = [text for side in zip(*segments, strict=True) for text in side]
    order = data.draw(st.permutations(range(len(flat))))
    opened = data.draw(st.lists(st.booleans(), min_size=len(flat), max_size=len(flat)))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(flat) - 1)))) if len(flat) > 1 else []
    restart = data.draw(st.booleans())
    bounds = [0, *cuts, len(flat)]
    arrangement = Arrangement(
        texts=np.array(order),
        opened=np.array(opened),
        opening_id=2,
        stretches_per_sequence=np.diff(bounds),
        sequences_per_row=np.array([len(bounds) - 1]),
        token_types=np.arange(len(flat)),
        positions_restart=restart,
    )
    laid = lay_out(arrangement, texts, eos_id=1)
    ids, positions, types, languages, lengths = [], [], [], [], []
    for first, last in pairwise(bounds):
        count = 0
        for stretch in range(first, last):
            piece = [2] * opened[stretch] + flat[order[stretch]] + [1]
            positions += range(len(piece)) if restart else range(count, count + len(piece))
            count += len(piece)
            ids += piece
            types += [stretch] * len(piece)
            languages += [3 if order[stretch] < len(segments) else 4] * len(piece)
        lengths.append(count)
    assert (laid.ids.tolist(), laid.positions.tolist(), laid.lengths.tolist()) == (ids, positions, lengths)
    assert (laid.token_types.tolist(), laid.languages.tolist()) == (types, languages)
