"""A small corpus of generated text in the format of the corpus stage, its vocabulary, and its shards."""

from pathlib import Path

import pytest

from xlm.corpora.documents import Document, SentencePair
from xlm.corpora.store import read_documents, write_documents, write_pairs
from xlm.seeding import keyed_generator
from xlm.shards.build import ShardBuilder
from xlm.shards.layouts import RULES
from xlm.shards.plan_requests import PlanRequest
from xlm.shards.reader import ShardSet
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary
from xlm.vocab.vocabulary import Vocabulary

ALPHABETS = {"en": "etaoinshrdlu", "de": "enisratdhulö", "zh-Hans": "的一是不了在人有我他这中大来上个国到说们为子和你地出道也时年"}
REQUESTS = [
    PlanRequest(corpus, layout, length)
    for layout, rule in RULES.items()
    for corpus in (("en", "de", "zh-Hans") if rule.kind == "monolingual" else ("en_de", "en_zh-Hans"))
    for length in (32, 64)
]


def sentences(language: str, count: int) -> list[str]:
    """Return sentences of Zipfian words of a made-up language in a real script."""
    generator = keyed_generator("shard text", language)
    words = ["".join(generator.choice(list(ALPHABETS[language]), size=int(generator.integers(1, 7)))) for _ in range(150)]
    separator = "" if language == "zh-Hans" else " "
    lengths = generator.integers(2, 14, size=count)
    return [
        separator.join(words[rank] for rank in generator.zipf(1.3, size=int(n)) % 150) + f"{separator}{i}." for i, n in enumerate(lengths)
    ]


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    text = {language: sentences(language, 300) for language in ALPHABETS}
    for language, lines in text.items():
        documents = [Document(f"{language}:{number}", line, language, "made", None) for number, line in enumerate(lines)]
        # Two long texts: one whose sentences are known, one whose are not.
        space = "" if language == "zh-Hans" else " "
        starts = [0]
        for line in lines[:39]:
            starts.append(starts[-1] + len(line) + len(space))
        documents.insert(50, Document(f"{language}:long", space.join(lines[:40]), language, "made", tuple(starts)))
        documents.insert(90, Document(f"{language}:longer", space.join(lines[40:90]), language, "made", None))
        documents.append(Document(f"{language}:empty", " \u200b ".strip("\u200b "), language, "made", None))
        write_documents(folder, language, documents)
    for language in ("de", "zh-Hans"):
        pairs = [
            SentencePair(str(number), source, target, "en", language, "made")
            for number, (source, target) in enumerate(zip(text["en"], text[language], strict=True))
        ]
        pairs.append(SentencePair("empty", "something", " ", "en", language, "made"))
        pairs.append(SentencePair("huge", " ".join(text["en"][:20]), text[language][0], "en", language, "made"))
        write_pairs(folder, f"en_{language}", pairs)
    return folder


@pytest.fixture(scope="session")
def vocabulary(corpus_folder) -> Vocabulary:
    lines = [line for language in ALPHABETS for line in sentences(language, 300)]
    return train_vocabulary(lines, VocabularySpec(size=700, case_fold=True))


@pytest.fixture(scope="session")
def texts(corpus_folder) -> dict[str, list[Document]]:
    """The documents that have tokens, by language, in the order of their items."""
    return {language: [d for d in read_documents(corpus_folder, language) if d.text.strip()] for language in ALPHABETS}


@pytest.fixture(scope="session")
def shards_folder(tmp_path_factory, corpus_folder, vocabulary) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    # 130 items a shard: three shards a corpus.
    ShardBuilder(corpus_folder, folder, vocabulary, items_per_shard=130, variants=2, seed=7).build(REQUESTS)
    return folder


@pytest.fixture(scope="session")
def shards(shards_folder, vocabulary) -> ShardSet:
    return ShardSet(shards_folder, vocabulary.fingerprint)
