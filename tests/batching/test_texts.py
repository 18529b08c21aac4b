import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xlm.batching.texts import Stretch, Texts

TEXT = st.lists(st.integers(0, 99), max_size=6)


@given(parts=st.lists(st.lists(TEXT, min_size=1, max_size=4), min_size=1, max_size=4), gap=st.integers(0, 3))
def test_texts_are_copied_where_they_belong(parts, gap):
    joined = Texts.joined([Texts.of([np.array(text, dtype=np.uint16) for text in part]) for part in parts])
    texts = [text for part in parts for text in part]
    starts = np.cumsum([gap, *(len(text) + gap for text in texts)])[:-1]
    out = np.full(int(sum(map(len, texts)) + gap * (len(texts) + 1)), -1)
    joined.copy_to(out, starts)
    expected = [-1] * gap + [value for text in texts for value in [*text, *[-1] * gap]]
    assert out.tolist() == expected


def test_stretches_may_interleave():
    first, second = np.array([1, 2, 3], dtype=np.uint16), np.array([7, 8, 9], dtype=np.uint32)
    texts = Texts(np.array([2, 1, 1]), [Stretch(np.array([0, 2]), first, np.array([1, 0])), Stretch(np.array([1]), second, np.array([2]))])
    out = np.zeros(4, dtype=np.int64)
    texts.copy_to(out, np.array([0, 2, 3]))
    assert out.tolist() == [2, 3, 9, 1]
