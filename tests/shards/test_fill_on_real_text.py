"""How full rows are on real text: pairs and documents of every source that is there, each by itself."""

import gzip
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from tests.shards.made_up_shards import made_up_shard, rows_of
from xlm.seeding import keyed_generator
from xlm.shards.block_plan import block_plan
from xlm.shards.layouts import RULES
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary

DATA = Path(__file__).parents[3] / "shared" / "data"
PAIRS = {
    "wesnoth": ("en", ("de", "ru", "tr", "vi")),
    "libreoffice_help": ("en-us", ("de", "hi", "ja", "ru", "zh-cn")),
    "quran": ("en", ("ar", "ru", "tr")),
    "bible_nt": ("eng-WEB", ("Swahili-NT",)),
}
# Languages whose documents are put together from consecutive entries: pages, chapters.
DOCUMENTS = {"libreoffice_help": ("en-us", "de", "ja", "zh-cn"), "quran": ("en", "ru", "ar"), "bible_nt": ("eng-WEB", "Swahili-NT")}
LENGTH = 256

pytestmark = pytest.mark.skipif(not (DATA / "wesnoth").is_dir(), reason=f"no texts at {DATA}")


def read(source, language):
    """Return the texts of a file by key, in order."""
    with gzip.open(DATA / source / f"{language}.tsv.gz", "rt", encoding="utf-8") as lines:
        fields = (line.rstrip("\n").partition("\t") for line in lines)
        return {key: text.strip() for key, _, text in fields if text.strip()}


def tatoeba():
    for path in sorted((DATA / "tatoeba").glob("tatoeba.*-eng.eng")):
        other = path.with_suffix("." + path.name.split(".")[1].split("-")[0])
        yield list(zip(path.read_text("utf-8").splitlines(), other.read_text("utf-8").splitlines(), strict=True))


@pytest.fixture(scope="module")
def pairs():
    found = {}
    for source, (english, others) in PAIRS.items():
        texts = read(source, english)
        for language in others:
            translations = read(source, language)
            found[f"{source} {language}"] = [(texts[key], translations[key]) for key in texts if key in translations]
    found["tatoeba"] = [pair for corpus in tatoeba() for pair in corpus]
    return found


@pytest.fixture(scope="module")
def vocabulary(pairs):
    lines = [side for of_source in pairs.values() for pair in of_source[::40] for side in pair]
    return train_vocabulary(lines, VocabularySpec(size=4000, case_fold=True))


@pytest.fixture(scope="module")
def pair_shards(pairs, vocabulary):
    return {
        name: made_up_shard("pair", *(vocabulary.encode_batch(list(texts)) for texts in zip(*of_source, strict=True)))
        for name, of_source in pairs.items()
    }


@pytest.mark.parametrize("layout", [layout for layout, rule in RULES.items() if rule.kind == "pair"])
def test_pairs_fill_98_percent(pair_shards, vocabulary, layout):
    for name, shard in pair_shards.items():
        plan, dropped = block_plan(shard, layout, LENGTH, is_word_start=vocabulary.is_word_start, generator=keyed_generator("fill"))
        assert len(plan.segments) + sum(dropped.values()) == shard.items
        assert plan.fill(layout, LENGTH) >= 0.99, name


def documents_of(source, language, vocabulary):
    """Return ids of documents of many sentences, and where those begin."""
    separator = "#" if source == "libreoffice_help" else ":" if source == "quran" else "."
    ids, starts = [], []
    for _, entries in groupby(read(source, language).items(), key=lambda entry: entry[0].rpartition(separator)[0]):
        sentences = [each for each in vocabulary.encode_batch([text for _, text in entries]) if len(each)]
        ids.append(np.concatenate(sentences))
        starts.append(np.cumsum([0, *map(len, sentences)])[:-1].tolist())
    return ids, starts


@pytest.mark.parametrize(("source", "language"), [(source, language) for source, of_source in DOCUMENTS.items() for language in of_source])
def test_documents_fill_99_and_a_half_percent(vocabulary, source, language):
    ids, known = documents_of(source, language, vocabulary)
    strings = [part for each, starts in zip(ids, known, strict=True) for part in np.split(each, starts[1:])]
    cases = {"sentences known": (ids, known), "sentences unknown": (ids, None), "strings": (strings, None)}
    for case, (texts, starts) in cases.items():
        shard = made_up_shard("monolingual", texts, sentence_starts=starts)
        for layout in ("documents", "full_sentences"):
            plan, _ = block_plan(shard, layout, LENGTH, is_word_start=vocabulary.is_word_start, generator=keyed_generator("fill"))
            assert plan.text_tokens == sum(map(len, texts))
            # Full sentences keep a short document of unknown sentences whole. One row too many is no fault either.
            least = 0.99 if (case, layout) == ("sentences unknown", "full_sentences") else 0.995
            assert plan.fill(layout, LENGTH) >= least or plan.rows <= plan.used(layout) // LENGTH + 2, (case, layout)
            if case == "sentences known":
                pieces = [segment for row in rows_of(plan) for segment in row]
                inside = [start not in known[item] for item, start, _ in pieces]
                assert np.mean(inside) < (0.15 if layout == "documents" else 0.03), layout
