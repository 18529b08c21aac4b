import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xlm.batching.keyed_words import KeyedWords
from xlm.seeding import key_digest, keyed_generator


@given(draws=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), min_size=1, max_size=10))
def test_words_are_those_of_the_keyed_generator_in_any_order(draws):
    words = KeyedWords()
    for key, count in draws:
        expected = keyed_generator("row", key).bit_generator.random_raw(count)
        assert np.array_equal(words.draw(key_digest("row", key), count), expected)


def test_streams_of_a_key_share_no_words():
    words = KeyedWords()
    drawn = np.concatenate([words.draw(key_digest("row"), 1000, stream=stream) for stream in range(3)])
    assert np.unique(drawn).size == 3000
