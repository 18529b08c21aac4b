import numpy as np
import pytest

from xlm.batching.given_text import TypedRows
from xlm.config.phases import Phase
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


def typed(vocabulary, *, seed=1, mask_rate=0.3, **objectives):
    phase = {
        "name": "shown",
        "steps": 1,
        "sequence_length": 64,
        "sampling": {"kind": "proportional"},
        "objectives": objectives or {"mlm": {"share": 1.0}},
        "mask_rate": mask_rate,
    }
    return TypedRows(vocabulary, Phase.model_validate(phase), seed)


def restored(batch):
    ids = batch.input_ids.clone()
    ids[batch.predict_positions] = batch.labels
    return ids.tolist()


def test_a_pair_is_laid_out_as_in_training(vocabulary):
    pair = ("鲸鱼是哺乳动物。", "Whales are mammals.")
    chinese, english = (vocabulary.encode(text).tolist() for text in pair)
    seen = set()
    for seed in range(12):
        batch = typed(vocabulary, seed=seed).pair(pair, "tlm", ["zh-Hans", "en"])
        ids = restored(batch)
        forwards = [vocabulary.bos_id, *chinese, vocabulary.eos_id, *english, vocabulary.eos_id]
        backwards = [vocabulary.bos_id, *english, vocabulary.eos_id, *chinese, vocabulary.eos_id]
        assert ids in (forwards, backwards)
        assert batch.language_ids[0] == (0 if ids == forwards else 1)
        assert batch.language_ids[-1] == (1 if ids == forwards else 0)
        assert batch.position_ids.tolist() == list(range(len(ids)))
        seen.add(ids == forwards)
        again = typed(vocabulary, seed=seed).pair(pair, "tlm", ["zh-Hans", "en"])
        assert again.input_ids.equal(batch.input_ids)
    assert seen == {True, False}


def test_a_contrastive_pair_is_two_unmasked_sequences(vocabulary):
    batch = typed(vocabulary).pair(("鲸鱼。", "Whales."), "contrastive", ["zh-Hans", "en"])
    assert batch.sequences == 2
    assert batch.labels.numel() == 0
    assert batch.pair_index.tolist() == [0, 0]


def test_code_switched_text_gets_its_languages_by_script(vocabulary):
    text = "周末我们打算去做hiking，你想一起来吗？"
    batch, languages = typed(vocabulary).text(text, "mlm", ["zh-Hans", "en"])
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
    _, languages = typed(vocabulary).text("我们hiking", "mlm", ["zh-Hans"])
    assert languages == ("zh-Hans", "und-Latn")


def test_text_without_letters_takes_the_first_language(vocabulary):
    batch, languages = typed(vocabulary).text("?", "mlm", ["en", "zh-Hans"])
    assert {languages[number] for number in batch.language_ids.tolist()} == {"en"}


def test_the_form_of_the_phase_is_used(vocabulary):
    batch = typed(vocabulary, tlm={"share": 1.0, "form": "xlm"}).pair(("Whales.", "鲸鱼。"), "tlm", ["en", "zh-Hans"])
    assert batch.position_ids.tolist().count(0) == 2
    assert restored(batch)[0] == vocabulary.eos_id


def test_two_spans_are_shown_in_order_or_swapped(vocabulary):
    first, second = (vocabulary.encode(text).tolist() for text in ("Whales.", "mammals."))
    forwards = [vocabulary.bos_id, *first, vocabulary.eos_id, *second, vocabulary.eos_id]
    backwards = [vocabulary.bos_id, *second, vocabulary.eos_id, *first, vocabulary.eos_id]
    for seed in range(8):
        batch = typed(vocabulary, seed=seed).pair(("Whales.", "mammals."), "sop", ["en"])
        assert restored(batch) == (backwards if batch.sequence_label.tolist() == [1] else forwards)
    follows = typed(vocabulary).pair(("Whales.", "mammals."), "nsp", ["en"])
    assert restored(follows) == forwards
    assert follows.sequence_label.tolist() == [0]


def test_a_text_for_the_next_piece_and_for_a_generator(vocabulary):
    batch, _ = typed(vocabulary).text("Whales are mammals.", "clm", ["en"])
    assert batch.labels.tolist() == batch.input_ids.tolist()[1:]
    batch, _ = typed(vocabulary).text("Whales are mammals.", "rtd", ["en"])
    assert restored(batch)[1:-1] == vocabulary.encode("Whales are mammals.").tolist()


def test_what_cannot_be_shown_is_said(vocabulary):
    rows = typed(vocabulary)
    with pytest.raises(UserError, match="cannot be shown as mlm; use --objective with one of tlm, contrastive, nsp, sop"):
        rows.pair(("a", "b"), "mlm", ["en", "de"])
    with pytest.raises(UserError, match="--pair as tlm needs two --languages"):
        rows.pair(("a", "b"), "tlm", ["en"])
    with pytest.raises(UserError, match="--pair as nsp needs one of --languages"):
        rows.pair(("a", "b"), "nsp", ["en", "de"])
    with pytest.raises(UserError, match="cannot be shown as tlm; use --objective with one of mlm, clm, rtd"):
        rows.text("a", "tlm", ["en"])
    with pytest.raises(UserError, match="nothing is left of the text"):
        rows.text("  ", "mlm", ["en"])
    with pytest.raises(UserError, match="nothing is left of the text"):
        rows.pair(("a", " "), "tlm", ["en", "de"])
