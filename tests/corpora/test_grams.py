import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.corpora.grams import BANDS, GramSets, gram_sets, minhash_bands

TEXTS = st.lists(st.text(alphabet="ab c鲸", min_size=1, max_size=14), min_size=1, max_size=12)


def grams_of(text):
    return {text[start : start + 5] for start in range(len(text) - 4)} or {text}


@settings(deadline=None)
@given(TEXTS)
def test_sets_have_the_sizes_and_intersections_of_the_strings_own_grams(texts):
    sets = gram_sets(texts)
    assert len(sets) == len(texts)
    for first, one in enumerate(texts):
        assert sets.sizes[first] == len(grams_of(one))
        for second, other in enumerate(texts):
            shared = np.intersect1d(sets.set_of(first), sets.set_of(second))
            assert len(shared) == len(grams_of(one) & grams_of(other))


def test_taking_some_sets_keeps_their_grams():
    sets = gram_sets(["first text", "second text", "third"])
    taken = sets.take(np.array([2, 0]))
    assert isinstance(taken, GramSets)
    assert np.array_equal(taken.set_of(0), sets.set_of(2))
    assert np.array_equal(taken.set_of(1), sets.set_of(0))


def test_more_texts_than_one_chunk_hold_the_same_grams():
    texts = [f"number {n}" for n in range(70_000)]
    sets = gram_sets(texts)
    for index in (0, 65_535, 65_536, 69_999):
        assert np.array_equal(sets.set_of(index), gram_sets([texts[index]]).set_of(0))


def test_no_text_gives_no_set():
    assert len(gram_sets([])) == 0
    assert minhash_bands(gram_sets([])).shape == (0, BANDS)


def test_bands_agree_with_the_probability_that_theory_gives():
    # A band of 4 agrees with probability J^4 (Leskovec, Rajaraman & Ullman, 3.4.2); 300 pairs x 24 bands.
    generator = np.random.default_rng(1)
    texts = []
    for _ in range(300):
        words = ["".join(generator.choice(list("abcdefgh"), 3)) for _ in range(20)]
        changed = list(words)
        changed[10] = "xyz"
        texts += [" ".join(words), " ".join(changed)]
    sets = gram_sets(texts)
    bands = minhash_bands(sets)
    jaccard = np.array(
        [len(grams_of(a) & grams_of(b)) / len(grams_of(a) | grams_of(b)) for a, b in zip(texts[::2], texts[1::2], strict=True)]
    )
    expected, found = (jaccard**4).mean(), (bands[::2] == bands[1::2]).mean()
    assert abs(found - expected) < 0.03
    assert len(np.unique(bands[:, 0])) > 300
