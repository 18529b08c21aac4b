"""Training: repeatable, special pieces where they belong, mistakes explained."""

import pytest
import sentencepiece

from xlm.errors import UserError
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_the_same_text_gives_the_same_model_twice(training_lines, model_type):
    spec = VocabularySpec(size=600, model_type=model_type, case_fold=True)
    first, second = (train_vocabulary(training_lines, spec) for _ in range(2))
    assert first.serialized_model == second.serialized_model
    assert first.fingerprint == second.fingerprint


def test_special_pieces_come_first_and_no_path_is_embedded(vocabulary):
    oracle = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.serialized_model)
    assert [oracle.id_to_piece(i) for i in range(5)] == ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    assert (oracle.pad_id(), oracle.unk_id(), oracle.bos_id(), oracle.eos_id()) == (0, 1, 2, 3)
    assert all(oracle.is_control(i) for i in (0, 2, 3, 4))
    assert oracle.is_unknown(1)
    assert vocabulary.size == oracle.get_piece_size() == 800


def test_little_text_gives_a_smaller_vocabulary():
    vocabulary = train_vocabulary(["the same few words again", "a few words more"] * 20, VocabularySpec(size=5000))
    assert 261 < vocabulary.size < 5000


def test_digits_are_split_when_asked():
    lines = ["in 1984 and 2001 and 1984 1984"] * 50
    whole = train_vocabulary(lines, VocabularySpec(size=300))
    split = train_vocabulary(lines, VocabularySpec(size=300, split_digits=True))
    assert "▁1984" in whole.pieces
    assert not any(len(piece.lstrip("▁")) > 1 and piece.lstrip("▁").isdigit() for piece in split.pieces)


def test_too_many_characters_for_the_size_is_a_sentence():
    lines = [chr(0x4E00 + number) * 3 for number in range(600)]
    with pytest.raises(UserError, match=r"300 pieces cannot hold every character of this text, which takes \d"):
        train_vocabulary(lines, VocabularySpec(size=300))


def test_no_text_is_a_sentence():
    with pytest.raises(UserError, match="no text"):
        train_vocabulary([], VocabularySpec(size=300))
