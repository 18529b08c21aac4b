"""Encoding each distinct text once, and where sentences begin among tokens."""

import numpy as np

from xlm.shards.encode import DistinctEncoder, token_starts


class Counting:
    """A vocabulary that counts the texts it is given."""

    def __init__(self, vocabulary):
        self.vocabulary, self.token_dtype, self.seen = vocabulary, vocabulary.token_dtype, []

    def encode_batch(self, texts):
        self.seen.extend(texts)
        return self.vocabulary.encode_batch(texts)


def test_each_distinct_text_is_encoded_once(vocabulary):
    counting = Counting(vocabulary)
    encoder = DistinctEncoder(counting)
    batches = [["one", "two", "one"], ["two", "three", ""], ["one", ""]]
    for texts in batches:
        encoded = encoder.encode(texts)
        assert [ids.tolist() for ids in encoded] == [vocabulary.encode(text).tolist() for text in texts]
        assert all(ids.dtype == np.uint16 for ids in encoded)
    assert sorted(counting.seen) == ["", "one", "three", "two"]


def test_a_full_memory_still_encodes(vocabulary):
    encoder = DistinctEncoder(Counting(vocabulary), max_remembered_tokens=1)
    for texts in (["one two three"], ["four", "one two three"], ["four"]):
        assert [ids.tolist() for ids in encoder.encode(texts)] == [vocabulary.encode(text).tolist() for text in texts]


def test_sentences_of_the_long_documents_begin_tokens(vocabulary, texts):
    for language in ("en", "de"):
        document = next(document for document in texts[language] if document.sentence_starts)
        ids, starts = DistinctEncoder(vocabulary).encode_with_sentences(document.text, document.sentence_starts)
        assert ids.tolist() == vocabulary.encode(document.text).tolist()
        assert len(starts) == len(document.sentence_starts)
        bounds = [*document.sentence_starts, len(document.text)]
        for number, first in enumerate(starts):
            last = [*starts, len(ids)][number + 1]
            sentence = document.text[bounds[number] : bounds[number + 1]]
            assert vocabulary.decode(ids[first:last]) == sentence.strip()


def test_a_sentence_that_begins_inside_a_token_is_left_out():
    #         0123456789
    text = "ab. cd.ef gh"
    begins = np.array([0, 2, 3, 6, 9])  # 'ab' '.' ' cd' '.ef' ' gh'
    assert token_starts(text, [0, 4, 7, 10], begins) == [0, 2, 4]
    assert token_starts(text, [], begins) == []
    assert token_starts(text, [12], begins) == []
