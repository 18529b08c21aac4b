import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.corpora.fold import fold
from xlm.corpora.held_out import HeldOutText
from xlm.errors import UserError

WORDS = ["turn", "on", "off", "the", "light", "lights", "in", "kitchen", "bedroom", "please", "open", "close", "garage", "door"]
WORDS += ["鲸鱼是哺乳动物", "свет", "на", "кухне", "включи"]
SENTENCES = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join), min_size=1, max_size=25)


def brute_force(held_out, text):
    """Exact match, or the largest Jaccard similarity of 5-gram sets, straight from the definition."""
    folded = fold(text)
    if not folded:
        return 0
    if any(fold(other) == folded for other in held_out):
        return 1
    mine = {folded[start : start + 5] for start in range(len(folded) - 4)} or {folded}
    for other in filter(None, map(fold, held_out)):
        theirs = {other[start : start + 5] for start in range(len(other) - 4)} or {other}
        if 5 * len(mine & theirs) >= 4 * len(mine | theirs):
            return 2
    return 0


@settings(deadline=None, max_examples=60)
@given(SENTENCES, SENTENCES)
def test_matches_are_those_of_brute_force(held_out, texts):
    found = HeldOutText.build(held_out).matches(texts)
    assert found.tolist() == [brute_force(held_out, text) for text in texts]


def test_near_duplicates_of_many_sentences_are_those_of_brute_force():
    generator = np.random.default_rng(0)
    held_out = [" ".join(generator.choice(WORDS, 12)) for _ in range(150)]
    texts = []
    for text in held_out:
        letters = list(text)
        letters[generator.integers(len(letters))] = "x"  # a typo: similarity around .85
        texts += ["".join(letters), text + " now", text.upper() + "!", " ".join(generator.choice(WORDS, 12))]
    found = HeldOutText.build(held_out).matches(texts)
    assert found.tolist() == [brute_force(held_out, text) for text in texts]
    assert np.bincount(found, minlength=3).min() > 50


def test_a_similarity_of_exactly_four_fifths_counts():
    # Shared grams of all: 8 of 10, 9 of 10, 8 of 9, 4 of 14.
    held_out = HeldOutText.build(["abcdefghijklm"])
    assert held_out.matches(["abcdefghijklX", "abcdefghijklmX", "abcdefghijkl", "abcdefghXjklm"]).tolist() == [2, 2, 2, 0]


def test_what_folds_to_nothing_matches_nothing():
    held_out = HeldOutText.build(["…", "", "hello"])
    assert len(held_out) == 1
    assert held_out.matches(["", "!!", "Hello."]).tolist() == [0, 0, 1]
    assert HeldOutText.build([]).matches(["hello"]).tolist() == [0]
    assert HeldOutText.build(["hello"]).matches([]).tolist() == []


def test_a_saved_set_holds_no_text_and_says_the_same(tmp_path):
    secret = ["Schalte das geheime Licht im Schlafzimmer an", "鲸鱼是哺乳动物鲸鱼是哺乳动物"]
    held_out = HeldOutText.build(secret)
    held_out.save(tmp_path / "held_out.npz")
    stored = (tmp_path / "held_out.npz").read_bytes()
    for text in secret:
        for encoding in ("utf-8", "utf-16-le", "utf-32-le"):
            assert fold(text).encode(encoding)[:16] not in stored
    again = HeldOutText.load(tmp_path / "held_out.npz")
    assert again.matches([*secret, "something else"]).tolist() == [1, 1, 0]
    assert again.fingerprint == held_out.fingerprint != HeldOutText.build(secret[:1]).fingerprint


def test_a_file_that_is_not_there_or_not_whole_is_one_sentence(tmp_path):
    path = tmp_path / "held_out.npz"
    with pytest.raises(UserError, match=r"run pipelines/build_tasks\.py first"):
        HeldOutText.load(path)
    HeldOutText.build(["hello there"]).save(path)
    whole = path.read_bytes()
    for broken in (whole[:100], b"", b"not a zip file"):
        path.write_bytes(broken)
        with pytest.raises(UserError, match="damaged"):
            HeldOutText.load(path)
    arrays = ["exact", "band_hashes", "band_owners", "gram_hashes", "gram_offsets"]
    np.savez(path, format_version=np.int64(99), **{name: np.zeros(1) for name in arrays})
    with pytest.raises(UserError, match="format version 99"):
        HeldOutText.load(path)
