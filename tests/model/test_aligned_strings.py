"""Strings brought together by their texts: against sets of tuples."""

from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.model.aligned_strings import PairBlock, StringParts

TEXT = st.lists(st.integers(0, 4), max_size=4).map(lambda ids: np.array(ids, dtype=np.uint16))
PAIRS = st.lists(st.tuples(st.sampled_from("abcdefgh"), TEXT, TEXT), min_size=1, max_size=20)


def columns_of(parts):
    """The columns of all parts, each a sorted list of (language, pieces)."""
    found = []
    for strings in parts.read():
        columns = defaultdict(list)
        ends = np.cumsum(strings.lengths)
        for number, end in enumerate(ends.tolist()):
            pieces = tuple(strings.pieces[end - strings.lengths[number] : end].tolist())
            columns[int(strings.column[number])].append((parts.languages[strings.language[number]], pieces))
        assert sorted(columns) == list(range(strings.columns))
        assert (np.diff(strings.column) >= 0).all()
        found += [sorted(strings) for strings in columns.values()]
    return sorted(found)


@given(corpora=st.dictionaries(st.sampled_from(["en_de", "en_fr", "de_fr"]), PAIRS), parts=st.integers(1, 5), block=st.integers(1, 7))
@settings(max_examples=100, deadline=None)
def test_columns_are_the_distinct_strings_of_a_key(tmp_path_factory, corpora, parts, block):
    expected, empty = defaultdict(set), 0
    found = StringParts(tmp_path_factory.mktemp("strings"), parts)
    for name, pairs in corpora.items():
        for first in range(0, len(pairs), block):
            found.add(name, PairBlock.of(pairs[first : first + block]))
        for key, *sides in pairs:
            for language, side in zip(name.split("_"), sides, strict=True):
                empty += len(side) == 0
                if len(side):
                    expected[key].add((language, tuple(side.tolist())))
    assert columns_of(found) == sorted(sorted(strings) for strings in expected.values())
    assert found.empty == empty


def test_blocks_may_be_views_into_a_larger_array(tmp_path):
    ids = np.arange(10, dtype=np.uint16)
    found = StringParts(tmp_path, 2)
    found.add("en_de", PairBlock(["a", "b"], (ids, ids), (np.array([2, 3, 5]), np.array([0, 1, 1]))))
    assert columns_of(found) == [[("de", (0,)), ("en", (2,))], [("en", (3, 4))]]
    assert found.empty == 1


def test_pairs_that_are_left_out_are_in_no_column(tmp_path):
    pairs = [(key, np.array(left), np.array(right)) for key, left, right in (("a", [1, 2], [3]), ("b", [4], [5, 6, 7]), ("c", [8, 9], [1]))]
    found = StringParts(tmp_path, 1)
    found.add("en_de", PairBlock.of(pairs).without(np.array([False, True, False])))
    assert columns_of(found) == [[("de", (1,)), ("en", (8, 9))], [("de", (3,)), ("en", (1, 2))]]
    block = PairBlock.of(pairs)
    assert block.without(np.zeros(3, dtype=bool)) is block


def test_the_order_of_pieces_tells_strings_apart_and_files_go(tmp_path):
    found = StringParts(tmp_path, 1)
    found.add("en_de", PairBlock.of([("a", np.array([1, 2]), np.array([3])), ("a", np.array([2, 1]), np.array([3]))]))
    assert columns_of(found) == [[("de", (3,)), ("en", (1, 2)), ("en", (2, 1))]]
    assert not list(tmp_path.iterdir())
