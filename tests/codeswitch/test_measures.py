import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.codeswitch.measures import (
    burstiness,
    cmi,
    cu,
    i_index,
    language_entropy,
    m_index,
    matrix_language,
    sp_avg,
    span_lengths,
    switches,
)

# Golden values of Guzmán et al. 2017's measures for one Hindi-English utterance; None for tokens of no language.
GOLDEN = ["en", "en", "hi", "hi", None, None, "hi", "hi", "en", "en", "en", "hi", "hi"]
TAGS = st.lists(st.sampled_from(["en", "de", "hi", None]), max_size=30)


def test_golden_values():
    assert cmi(GOLDEN) == pytest.approx(45.4545, abs=1e-4)
    assert cu(GOLDEN) == pytest.approx(36.3636, abs=1e-4)
    assert m_index(GOLDEN) == pytest.approx(0.98361, abs=1e-5)
    assert language_entropy(GOLDEN) == pytest.approx(0.99403, abs=1e-5)
    assert i_index(GOLDEN) == pytest.approx(0.3)
    assert burstiness(GOLDEN) == pytest.approx(-0.48351, abs=1e-5)
    assert sp_avg([GOLDEN]) == 3.0


def test_burstiness_takes_the_sample_deviation():
    assert burstiness(GOLDEN) != pytest.approx(-0.53668, abs=1e-4)
    lengths = np.array([2, 4, 3, 2])
    deviation = lengths.std(ddof=1)
    assert burstiness(GOLDEN) == pytest.approx((deviation - lengths.mean()) / (deviation + lengths.mean()))


def test_a_final_span_of_one_token_counts():
    assert span_lengths(["en", "en", "hi"]) == [2, 1]
    assert switches(["en", "en", "hi"]) == 1
    assert burstiness(["en", "en", "hi"]) == pytest.approx((math.sqrt(0.5) - 1.5) / (math.sqrt(0.5) + 1.5))


def test_neutral_tokens_never_win_the_majority():
    tags = [None, None, None, "hi", "en", "hi"]
    assert cmi(tags) == pytest.approx(100 / 3)
    assert matrix_language(tags) == "hi"
    assert matrix_language([None, None]) is None


def test_switches_into_neutral_tokens_do_not_count():
    assert switches(["en", None, "en", None]) == 0
    assert switches(["en", None, "hi"]) == 1
    assert i_index(["en", None, "en"]) == 0.0


def test_a_tied_matrix_language_depends_on_its_own_utterance_alone():
    assert matrix_language(["hi", "en", "en", "hi"]) == "hi"
    assert matrix_language(["en", "hi", "hi", "en"]) == "en"
    first = matrix_language(["hi", "hi", "hi"])
    assert (first, matrix_language([None, "en", "hi"])) == ("hi", "en")


def test_texts_with_nothing_to_switch():
    for tags in ([], [None], ["en"], ["en", "en"]):
        assert cmi(tags) == cu(tags) == m_index(tags) == language_entropy(tags) == i_index(tags) == 0.0
        assert switches(tags) == 0
    assert math.isnan(burstiness(["en", "en"]))
    assert sp_avg([]) == 0.0


@given(TAGS)
def test_measures_keep_their_ranges_and_follow_the_formulas(tags):
    known = [tag for tag in tags if tag]
    counts = Counter(known)
    changes = sum(one != two for one, two in itertools.pairwise(known))
    assert switches(tags) == changes
    assert sum(span_lengths(tags)) == len(known)
    assert 0 <= cmi(tags) < 100
    assert 0 <= m_index(tags) <= 1 + 1e-9
    assert 0 <= language_entropy(tags) <= math.log2(3) + 1e-9
    assert 0 <= i_index(tags) <= 1
    if known:
        top = max(counts.values())
        assert cmi(tags) == pytest.approx(100 * (1 - top / len(known)))
        assert cu(tags) == pytest.approx(100 * (len(known) - top + changes) / (2 * len(known)))
        assert counts[matrix_language(tags)] == top
    with_more_neutral = [tag for pair in zip(tags, [None] * len(tags), strict=True) for tag in pair]
    assert cmi(with_more_neutral) == cmi(tags)
    assert switches(with_more_neutral) == switches(tags)


def test_equal_shares_reach_the_maximum():
    assert m_index(["en", "hi", "de"]) == pytest.approx(1.0)
    assert language_entropy(["en", "hi", "de", "el"]) == pytest.approx(2.0)
