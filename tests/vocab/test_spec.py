"""The vocabulary spec: what it allows, and that the shipped specs are valid."""

from pathlib import Path

import pytest

from xlm.config.strict import load_config
from xlm.errors import UserError
from xlm.vocab.spec import VocabularySpec


@pytest.mark.parametrize("name", ["quickstart.yaml", "smoke.yaml"])
def test_shipped_specs_load(name):
    spec = load_config(VocabularySpec, Path(__file__).parents[2] / "vocab" / name)
    assert spec.case_fold
    assert spec.normalisation_rule.endswith("_cf")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("size: 1000\nvocabsize: 3\n", r":2: unknown key 'vocabsize'"),
        ("size: 1000\nmodel_typ: bpe\n", r"did you mean 'model_type'"),
        ("size: 1000\nnormaliser: identity\ncase_fold: true\n", "identity changes nothing"),
        ("size: 261\n", "leaves no room for learned pieces: 261"),
        ("size: 1000\nsampling_alpha: 1.5\n", "sampling_alpha"),
        ("model_type: bpe\n", "'size' is missing"),
    ],
)
def test_mistakes_are_sentences(tmp_path, text, sentence):
    path = tmp_path / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=sentence):
        load_config(VocabularySpec, path)


def test_folding_is_a_rule_of_the_normaliser():
    assert VocabularySpec(size=1000, normaliser="nmt_nfkc", case_fold=True).normalisation_rule == "nmt_nfkc_cf"
    assert VocabularySpec(size=1000, normaliser="identity").normalisation_rule == "identity"
