"""Turns are perfect matchings, every two languages meet, and texts begin at different rounds."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from xlm.shards.turns import takes_part, turns


def every_pair(languages, key, seed=3):
    pairs = list(combinations(range(languages), 2))
    first, second = np.array(pairs).T
    count = np.full(len(pairs), languages)
    return pairs, turns(count, first, second, np.full(len(pairs), key, dtype=np.uint64), seed)


@pytest.mark.parametrize("languages", range(2, 14))
@pytest.mark.parametrize("key", [0, 1, 2**64 - 1])
def test_a_variant_is_a_matching_and_all_pairs_meet_once(languages, key):
    pairs, of_pairs = every_pair(languages, key)
    rounds = languages - 1 if languages % 2 == 0 else languages
    assert set(of_pairs[:, 0].tolist()) == {rounds}
    met = Counter()
    for variant in range(rounds):
        chosen = [pair for pair, mine in zip(pairs, takes_part(of_pairs, variant), strict=True) if mine]
        assert len(chosen) == languages // 2
        assert len({player for pair in chosen for player in pair}) == 2 * (languages // 2)
        met.update(chosen)
        assert (takes_part(of_pairs, variant) == takes_part(of_pairs, variant + rounds)).all()
    assert met == Counter(pairs)


def test_the_order_of_the_two_languages_does_not_matter():
    keys = np.arange(10, dtype=np.uint64)
    six, one, four = (np.full(10, value) for value in (6, 1, 4))
    assert (turns(six, one, four, keys, 1) == turns(six, four, one, keys, 1)).all()


def test_texts_begin_at_rounds_drawn_by_key_and_seed():
    keys = np.arange(7000, dtype=np.uint64)
    eight, first, second = (np.full(7000, value) for value in (8, 2, 7))
    found = turns(eight, first, second, keys, 1)[:, 1]
    # Seven rounds, each with 1,000 expected; a deviation of 150 is more than five standard deviations.
    assert (np.abs(np.bincount(found, minlength=7) - 1000) < 150).all()
    assert (found != turns(eight, first, second, keys, 2)[:, 1]).any()
