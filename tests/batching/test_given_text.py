import numpy as np
import pytest

from xlm.batching.given_text import given_pair, given_text
from xlm.errors import UserError
from xlm.seeding import keyed_generator
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary

LETTERS = {"en": "abcdefghiklmnoprstuw", "zh": "周末我们打算去做你想一起来吗鲸鱼是哺乳动物"}


@pytest.fixture(scope="session")
def vocabulary():
    lines = []
    for language, letters in LETTERS.items():
        generator = keyed_generator("given text", language)
        for _ in range(300):
            words = ["".join(generator.choice(list(letters), int(generator.integers(1, 6)))) for _ in range(6)]
            lines.append((" " if language == "en" else "").join(words) + generator.choice(["。", ".", "?", "，"]))
    return train_vocabulary(lines, VocabularySpec(size=500, case_fold=True))


def restored(batch):
    ids = batch.input_ids.clone()
    ids[batch.predict_positions] = batch.labels
    return ids.tolist()


def test_a_pair_is_laid_out_as_in_training(vocabulary):
    pair = ("鲸鱼是哺乳动物。", "Whales are mammals.")
    chinese, english = (vocabulary.encode(text).tolist() for text in pair)
    seen = set()
    for seed in range(12):
        batch = given_pair(vocabulary, pair, "tlm", mask_rate=0.3, seed=seed)
        ids = restored(batch)
        forwards = [vocabulary.bos_id, *chinese, vocabulary.eos_id, *english, vocabulary.eos_id]
        backwards = [vocabulary.bos_id, *english, vocabulary.eos_id, *chinese, vocabulary.eos_id]
        assert ids in (forwards, backwards)
        assert batch.language_ids[0] == (0 if ids == forwards else 1)
        assert batch.language_ids[-1] == (1 if ids == forwards else 0)
        assert batch.position_ids.tolist() == list(range(len(ids)))
        seen.add(ids == forwards)
        again = given_pair(vocabulary, pair, "tlm", mask_rate=0.3, seed=seed)
        assert again.input_ids.equal(batch.input_ids)
    assert seen == {True, False}


def test_a_contrastive_pair_is_two_unmasked_sequences(vocabulary):
    batch = given_pair(vocabulary, ("鲸鱼。", "Whales."), "contrastive", mask_rate=0.3, seed=1)
    assert batch.sequences == 2
    assert batch.labels.numel() == 0
    assert batch.pair_index.tolist() == [0, 0]


def test_code_switched_text_gets_its_languages_by_script(vocabulary):
    text = "周末我们打算去做hiking，你想一起来吗？"
    batch, languages = given_text(vocabulary, text, "mlm", ["zh-Hans", "en"], mask_rate=0.15, seed=1)
    assert languages == ("zh-Hans", "en")
    ids, offsets = vocabulary.encode_with_offsets(text)
    assert restored(batch) == [vocabulary.bos_id, *ids.tolist(), vocabulary.eos_id]
    begin = text.index("hiking")
    for (start, end), language in zip(offsets.tolist(), batch.language_ids[1:-1].tolist(), strict=True):
        if end > begin and start < begin + len("hiking"):
            assert languages[language] == "en"
        elif end <= begin:
            assert languages[language] == "zh-Hans"
    assert languages[batch.language_ids[0]] == languages[batch.language_ids[-1]] == "zh-Hans"
    spans = np.count_nonzero(np.diff(batch.language_ids.numpy()))
    assert spans == 2


def test_a_script_of_no_named_language_is_named(vocabulary):
    _, languages = given_text(vocabulary, "我们hiking", "mlm", ["zh-Hans"], mask_rate=0.15, seed=1)
    assert languages == ("zh-Hans", "und-Latn")


def test_text_without_letters_takes_the_first_language(vocabulary):
    batch, languages = given_text(vocabulary, "?", "mlm", ["en", "zh-Hans"], mask_rate=0.15, seed=1)
    assert {languages[number] for number in batch.language_ids.tolist()} == {"en"}


def test_what_cannot_be_shown_is_said(vocabulary):
    with pytest.raises(UserError, match="cannot be shown as mlm; use --objective tlm or contrastive"):
        given_pair(vocabulary, ("a", "b"), "mlm", mask_rate=0.15, seed=1)
    with pytest.raises(UserError, match="cannot be shown as tlm"):
        given_text(vocabulary, "a", "tlm", ["en"], mask_rate=0.15, seed=1)
    with pytest.raises(UserError, match="nothing is left of the text"):
        given_text(vocabulary, "  ", "mlm", ["en"], mask_rate=0.15, seed=1)
    with pytest.raises(UserError, match="nothing is left of the text"):
        given_pair(vocabulary, ("a", " "), "tlm", mask_rate=0.15, seed=1)
