import itertools

import numpy as np
import pytest

from xlm.codeswitch.tokens import tokenise
from xlm.config.model import ModelConfig
from xlm.evaluation.encode import encode_tokenised
from xlm.evaluation.packing import TokenisedTexts
from xlm.evaluation.words import encode_words, locate_words, word_rows
from xlm.model.encoder import Encoder
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary

TEXTS = ("turn on the desk-lamp now", "打开厨房的灯", "allume l'entrée", "café ﬁn déjà", "", "%")


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary([*TEXTS[:4], "打开 厨房 灯", "turn the lamp"] * 20, VocabularySpec(size=330, threads=1))


def test_each_word_is_the_piece_that_holds_its_first_character(vocabulary):
    located = locate_words(vocabulary, TEXTS, 64)
    for text, sequence, words, continued in zip(
        TEXTS, located.tokenised.sequences, located.tokenised.words, located.continued, strict=True
    ):
        tokens = tokenise(text)
        assert len(words) == len(continued) == len(tokens)
        ids, offsets = vocabulary.encode_with_offsets(text)
        assert sequence.tolist() == [vocabulary.bos_id, *ids.tolist(), vocabulary.eos_id]
        for token, position in zip(tokens, words, strict=True):
            begin, end = offsets[position - 1]
            assert begin <= token.start < end
        assert [bool(one) for one in continued] == [False, *(b == a for a, b in itertools.pairwise(words))][: len(tokens)]
    assert any(any(continued) for continued in located.continued)  # 打开 is one piece
    assert located.tokenised.cut == 0


def test_words_beyond_what_the_encoder_reads_are_counted_and_read_at_the_end(vocabulary):
    located = locate_words(vocabulary, ["turn on the desk-lamp now"], 5)
    assert located.tokenised.cut == 1
    (sequence,), (words,) = located.tokenised.sequences, located.tokenised.words
    assert len(sequence) == 5
    assert words.max() == 4


def test_states_of_words_come_text_after_text(vocabulary):
    encoder = Encoder(
        ModelConfig(width=16, layers=2, heads=2, feed_forward=32, max_positions=32, initializer_range=0.3), vocabulary.size, 1
    )
    located = locate_words(vocabulary, TEXTS, 32).tokenised
    states = encode_words(encoder, located, (0, -1))
    ends = np.cumsum([len(own) for own in located.words])
    assert states.shape == (2, ends[-1], 16)
    for row in range(len(TEXTS)):
        alone = encode_words(encoder, located.select([row]), (0, -1))
        np.testing.assert_allclose(states[:, word_rows(ends, [row])], alone, atol=1e-6)
    # A text of one piece: its word's state is the mean over the text, which leaves out <s> and </s>.
    single = locate_words(vocabulary, ["lamp"], 32).tokenised
    if len(single.sequences[0]) == 3:
        np.testing.assert_allclose(encode_words(encoder, single, (-1,)), encode_tokenised(encoder, single), atol=1e-6)


def test_rows_of_words():
    ends = np.cumsum([2, 0, 3])
    assert word_rows(ends, [2, 0]).tolist() == [2, 3, 4, 0, 1]
    assert word_rows(ends, [1]).tolist() == []
    with pytest.raises(ValueError, match="texts without words"):
        encode_words(None, TokenisedTexts((), 0), (-1,))
