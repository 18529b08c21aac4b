"""The lexicons of a run's corpus, split in two: what classifiers may learn from, and what they are tested with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlm.codeswitch.lexicon import Lexicon
from xlm.corpora.documents import pair_name
from xlm.corpora.store import pair_names, read_pairs
from xlm.errors import UserError
from xlm.evaluation.intent_task import SOURCE_LANGUAGE
from xlm.evaluation.percent import rounded


@dataclass(frozen=True)
class SplitLexicons:
    """By language, the halves of its lexicon, which share no English word; ``left_out``: entries whose words fall to both."""

    training: Mapping[str, Lexicon]
    test: Mapping[str, Lexicon]
    left_out: Mapping[str, int]


def load_lexicons(corpus: Path, languages: Sequence[str], seed: int, key: str) -> SplitLexicons:
    """Build and split the lexicon of each language from the cleaned pairs of the corpus.

    Raises UserError for a language without pairs, with the ``key`` of the recipe that names it.
    """
    present = pair_names(corpus)
    training, test, left_out = {}, {}, {}
    for language in languages:
        name = pair_name(SOURCE_LANGUAGE, language)
        if name not in present:
            raise UserError(f"{key} names '{language}', but the corpus has no pairs {name}; there are {', '.join(present)}.")
        whole = Lexicon.from_pairs(read_pairs(corpus, name))
        training[language], test[language] = whole.halves(seed)
        left_out[language] = len(whole) - len(training[language]) - len(test[language])
    return SplitLexicons(training, test, left_out)


def lexicon_record(lexicons: Mapping[str, Lexicon], left_out: Mapping[str, int], texts: Iterable[str]) -> dict[str, Any]:
    """Return for each language how many entries this half has, and the share of the words of ``texts`` they cover, in percent."""
    sentences = list(texts)
    return {
        language: {
            "entries": len(lexicon),
            "left_out": left_out[language],
            "coverage": rounded(100.0 * lexicon.coverage(sentences).share),
        }
        for language, lexicon in lexicons.items()
    }
