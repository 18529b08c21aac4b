"""Language-balanced sampling: quotas against published figures, selection against its definition."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.corpora.documents import Document, SentencePair
from xlm.corpora.store import write_documents, write_pairs
from xlm.errors import UserError
from xlm.vocab.sampling import character_quotas, read_texts, sample_text, split_line, take_lines, text_languages, thin_texts


@pytest.mark.parametrize(
    ("alpha", "shares"),
    # q = p^alpha / sum p^alpha for p = .9, .09, .01, computed by hand to four digits.
    [(0.7, (0.8049, 0.1606, 0.0345)), (0.5, (0.7034, 0.2224, 0.0741)), (0.3, (0.5680, 0.2847, 0.1473))],
)
def test_quotas_are_exponentially_smoothed(alpha, shares):
    quotas = character_quotas({"a": 90_000_000, "b": 9_000_000, "c": 1_000_000}, alpha=alpha, max_characters=1_000_000)
    assert [quotas[name] / 1_000_000 for name in "abc"] == pytest.approx(shares, abs=1e-4)


def test_a_small_language_gives_all_it_has_and_the_others_share_the_rest():
    quotas = character_quotas({"a": 10_000, "b": 10_000, "c": 10}, alpha=0.0, max_characters=1_000)
    assert quotas == {"a": 495, "b": 495, "c": 10}


@given(
    sizes=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 10**9), min_size=1),
    alpha=st.floats(0, 1),
    budget=st.integers(1, 10**9),
)
def test_quotas_stay_within_the_budget_and_the_corpus(sizes, alpha, budget):
    quotas = character_quotas(sizes, alpha=alpha, max_characters=budget)
    assert quotas.keys() == sizes.keys()
    assert all(0 <= quotas[name] <= sizes[name] for name in sizes)
    total = sum(quotas.values())
    assert total <= budget
    assert total >= min(budget, sum(sizes.values())) - len(sizes)


def test_lines_do_not_depend_on_the_order_they_come_in():
    lines = [f"line {number % 70}" for number in range(200)]
    taken = take_lines(lines, 400, language="en", seed=1)
    assert sum(map(len, taken)) <= 400
    assert sum(map(len, taken)) > 380
    assert sorted(taken) == sorted(take_lines(lines[::-1], 400, language="en", seed=1))
    assert sorted(taken) != sorted(take_lines(lines, 400, language="en", seed=2))
    assert not Counter(taken) - Counter(lines)


def test_everything_is_taken_when_the_quota_suffices():
    lines = ["a b", "c", "a b"]
    assert sorted(take_lines(lines, 7, language="en", seed=1)) == sorted(lines)


@given(st.text(alphabet="ab 中é\U0001f642", max_size=80), st.integers(4, 20))
def test_split_lines_join_to_the_text_and_fit(text, limit):
    pieces = split_line(text, limit)
    assert "".join(pieces) == text
    assert all(len(piece.encode()) <= limit for piece in pieces)


def test_long_lines_are_split_after_white_space():
    assert split_line("aaa bbb ccc", 8) == ["aaa bbb ", "ccc"]
    assert split_line("aaaaaaaaaa", 4) == ["aaaa", "aaaa", "aa"]


def documents(language, texts):
    return [Document(f"{language}:{number}", text, language, "made", None) for number, text in enumerate(texts)]


def test_a_corpus_is_sampled_with_everything_odd_counted(tmp_path, lines_of):
    write_documents(tmp_path, "en", documents("en", [*lines_of("en", 300), "tab\tseparated", "bad ▅ line", "word " * 2000]))
    write_documents(tmp_path, "ru", documents("ru", ["\n".join(lines_of("ru", 30))]))
    sample = sample_text(tmp_path, alpha=0.5, max_characters=100_000, seed=1)
    assert sample.counts["left out: holds a character SentencePiece reserves"] == 1
    assert sample.counts["split: longer than SentencePiece reads"] == 1
    assert "tab separated" in sample.lines
    assert not any("▅" in line or "\n" in line for line in sample.lines)
    assert all(len(line.encode()) <= 4192 for line in sample.lines)
    assert sample.characters == sample.available_characters

    small = sample_text(tmp_path, alpha=0.0, max_characters=2_000, seed=1)
    assert small.lines == sample_text(tmp_path, alpha=0.0, max_characters=2_000, seed=1).lines
    assert 800 < small.characters["ru"] <= 1_000
    assert small.characters["en"] <= 1_000


def test_a_language_that_only_pairs_have_is_sampled_once_a_string(tmp_path):
    write_documents(tmp_path, "en", documents("en", ["one"]))
    write_pairs(
        tmp_path, "en_de", [SentencePair("1", "one", "eins", "en", "de", "made"), SentencePair("2", "One", "eins", "en", "de", "made")]
    )
    assert text_languages(tmp_path) == ["de", "en"]
    assert list(read_texts(tmp_path, "de")) == ["eins"]
    assert list(read_texts(tmp_path, "en")) == ["one"]


def test_thinning_keeps_about_the_share_asked_for(tmp_path):
    texts = [f"text {number}" for number in range(2000)]
    write_documents(tmp_path, "en", documents("en", texts))
    kept = list(thin_texts(tmp_path, "en", keep_share=0.25, seed=3))
    assert 420 < len(kept) < 580
    assert kept == [text for text in texts if text in set(kept)]
    assert list(thin_texts(tmp_path, "en", keep_share=2.0, seed=3)) == texts


def test_an_empty_corpus_is_a_sentence(tmp_path):
    write_documents(tmp_path, "en", documents("en", ["  \n "]))
    with pytest.raises(UserError, match="holds no text"):
        sample_text(tmp_path, alpha=0.5, max_characters=1000, seed=1)
