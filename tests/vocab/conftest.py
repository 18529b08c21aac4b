"""Generated text in several scripts, and a small vocabulary trained on it once a session."""

from collections.abc import Callable

import pytest

from xlm.seeding import keyed_generator
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary
from xlm.vocab.vocabulary import Vocabulary

ALPHABETS = {
    "en": "etaoinshrdlu",
    "de": "enisratdhulö",
    "ru": "оеаинтсрвлкм",
    "el": "αοιετσνηυρπκ",
    "hi": "कनमरतलसहप",
    "zh-Hans": "的一是不了在人有我他这中大来上个国到说们为子和你地出道也时年",
}


def generated_lines(language: str, lines: int) -> list[str]:
    """Return lines of words drawn from a Zipfian lexicon of a made-up language in a real script."""
    generator = keyed_generator("generated text", language)
    alphabet = ALPHABETS[language]
    words = ["".join(generator.choice(list(alphabet), size=int(generator.integers(1, 8)))) for _ in range(200)]
    separator = "" if language == "zh-Hans" else " "
    texts = []
    for number in range(lines):
        ranks = generator.zipf(1.3, size=int(generator.integers(3, 12))) % len(words)
        texts.append(separator.join(words[rank] for rank in ranks) + f" {number}.")
    return texts


@pytest.fixture(scope="session")
def lines_of() -> Callable[[str, int], list[str]]:
    return generated_lines


@pytest.fixture(scope="session")
def training_lines() -> list[str]:
    return [line for language in ALPHABETS for line in generated_lines(language, 200)]


@pytest.fixture(scope="session")
def vocabulary(training_lines: list[str]) -> Vocabulary:
    return train_vocabulary(training_lines, VocabularySpec(size=800, case_fold=True))
