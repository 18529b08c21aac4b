"""Names of pair corpora split back, whatever the language tags."""

import dataclasses

import pytest

from xlm.corpora.documents import Document, SentencePair, pair_name, split_pair_name


@pytest.mark.parametrize("languages", [("en", "de"), ("en", "zh-Hans"), ("sr-Latn", "pt-BR")])
def test_pair_names_split_back(languages):
    assert split_pair_name(pair_name(*languages)) == languages


def test_texts_do_not_change_after_reading():
    for value in (Document("1", "a", "en", "news"), SentencePair("k", "a", "b", "en", "de", "news")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            value.corpus = "other"
