"""How much, and in what way, a text switches between languages.

All take one language tag a token; `NEUTRAL` (None) stands for tokens that belong to no language (names,
numbers, punctuation). Neutral tokens never count: not as tokens, not as a language, and a switch is
counted between the language-tagged tokens on both sides of them. Symbols: N language-tagged tokens, m
tokens of the most frequent language, P switches between neighbouring language-tagged tokens, p the
languages' shares of N, k languages. A text with nothing to switch between scores 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

Tag = str | None
NEUTRAL: Tag = None


def cmi(tags: Sequence[Tag]) -> float:
    """Code-mixing index 100 (1 - m / N), 0 where N = 0 (Gambäck & Das 2014); 0 to 100."""
    languages = _tagged(tags)
    if not languages:
        return 0.0
    return 100.0 * (1.0 - max(Counter(languages).values()) / len(languages))


def cu(tags: Sequence[Tag]) -> float:
    """Utterance complexity 100 (N - m + P) / (2 N), which counts the switches too (Gambäck & Das 2016)."""
    languages = _tagged(tags)
    if not languages:
        return 0.0
    size = len(languages)
    return 100.0 * (size - max(Counter(languages).values()) + switches(tags)) / (2 * size)


def m_index(tags: Sequence[Tag]) -> float:
    """Multilingual index (1 - sum p²) / ((k - 1) sum p²): 0 one language, 1 all languages equally (Guzmán et al. 2017)."""
    shares = _shares(tags)
    if len(shares) < 2:
        return 0.0
    squares = sum(share * share for share in shares)
    return (1.0 - squares) / ((len(shares) - 1) * squares)


def language_entropy(tags: Sequence[Tag]) -> float:
    """Entropy of the languages' shares, - sum p log2 p, in bits (Guzmán et al. 2017)."""
    # max: with one language the sum is -0.0.
    return max(0.0, -sum(share * math.log2(share) for share in _shares(tags)))


def i_index(tags: Sequence[Tag]) -> float:
    """Integration index P / (N - 1): the share of neighbours that switch (Guzmán et al. 2017)."""
    size = len(_tagged(tags))
    return switches(tags) / (size - 1) if size > 1 else 0.0


def burstiness(tags: Sequence[Tag]) -> float:
    """Burstiness (σ - μ) / (σ + μ) of the span lengths, σ the sample deviation (Goh & Barabási 2008).

    -1 is periodic, 0 random, towards 1 bursty. Fewer than two spans have no deviation: NaN.
    """
    lengths = span_lengths(tags)
    if len(lengths) < 2:
        return math.nan
    mean = sum(lengths) / len(lengths)
    deviation = math.sqrt(sum((length - mean) ** 2 for length in lengths) / (len(lengths) - 1))
    return (deviation - mean) / (deviation + mean)


def sp_avg(utterances: Iterable[Sequence[Tag]]) -> float:
    """Mean number of switch points an utterance (Guzmán et al. 2017)."""
    counts = [switches(tags) for tags in utterances]
    return sum(counts) / len(counts) if counts else 0.0


def switches(tags: Sequence[Tag]) -> int:
    """Count the switches P; neutral tokens are skipped, so ``en - hi`` is one switch and ``en - en`` none."""
    return max(0, len(span_lengths(tags)) - 1)


def span_lengths(tags: Sequence[Tag]) -> list[int]:
    """Return the lengths of the runs of one language, in language-tagged tokens; their sum is N."""
    lengths: list[int] = []
    previous: Tag = NEUTRAL
    for language in _tagged(tags):
        if language == previous:
            lengths[-1] += 1
        else:
            lengths.append(1)
        previous = language
    return lengths


def matrix_language(tags: Sequence[Tag]) -> Tag:
    """Return the most frequent language of one utterance; of languages tied, the one that comes first in it; None where all is neutral."""
    languages = _tagged(tags)
    # Counter keeps the order of first occurrence, and max takes the first of equals.
    counts = Counter(languages)
    return max(counts, key=lambda language: counts[language]) if counts else None


def _tagged(tags: Sequence[Tag]) -> list[str]:
    return [tag for tag in tags if tag is not None]


def _shares(tags: Sequence[Tag]) -> list[float]:
    languages = _tagged(tags)
    return [count / len(languages) for count in Counter(languages).values()]
