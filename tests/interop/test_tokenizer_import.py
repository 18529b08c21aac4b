"""Vocabularies read from transformers folders: rows against transformers' own XLM-R tokenizer, and what is refused."""

import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer, XLMRobertaTokenizer

from tests.vocab.conftest import ALPHABETS, generated_lines
from xlm.errors import UserError
from xlm.interop.tokenizer_export import write_hf_tokenizer
from xlm.interop.tokenizer_import import read_hf_vocabulary
from xlm.vocab.parts import inexact_scores, with_exact_scores
from xlm.vocab.spec import SPECIAL_PIECES, VocabularySpec
from xlm.vocab.train import train_vocabulary

DATA = Path(__file__).parents[3] / "shared" / "data"


def xlmr_model(lines, *, size=600, exact=True, **settings):
    """Train a model as XLM-R's was: <unk> <s> </s> first, no <pad> and no <mask>."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=size, hard_vocab_limit=False, num_threads=1, minloglevel=2, **settings
    )
    return with_exact_scores(model.getvalue()) if exact else model.getvalue()


@pytest.fixture(scope="module")
def lines():
    return [line for language in ALPHABETS for line in generated_lines(language, 120)]


@pytest.fixture
def xlmr(tmp_path, lines):
    (tmp_path / "sentencepiece.bpe.model").write_bytes(xlmr_model(lines))
    return tmp_path


def same_ids(imported, tokenizer, texts):
    special = [int(row) for row in imported.ids[:4]]
    found = tokenizer(texts)["input_ids"]
    for text, theirs in zip(texts, found, strict=True):
        ours = imported.ids[imported.vocabulary.encode(text)].tolist()
        assert [special[2], *ours, special[3]] == theirs, text


def test_rows_are_those_of_transformers(xlmr, lines):
    imported = read_hf_vocabulary(xlmr)
    theirs = XLMRobertaTokenizer.from_pretrained(xlmr)
    assert imported.vocabulary.pieces[:5] == SPECIAL_PIECES
    assert imported.ids.dtype == np.int64
    assert theirs.convert_ids_to_tokens(imported.ids.tolist()) == list(imported.vocabulary.pieces)
    assert sorted(imported.ids.tolist()) == list(range(len(theirs)))
    assert imported.ids[:5].tolist() == [1, 3, 0, 2, theirs.mask_token_id]
    # An unknown character, none of the special ones.
    same_ids(imported, theirs, [*lines, "", "one ☃ two", "☃☃", " a  b "])
    assert imported.remarks == ()


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no texts at {DATA}")
def test_ids_on_real_lines_are_those_of_transformers(tmp_path):
    texts = []
    for source, language in (("wesnoth", "de"), ("wesnoth", "ru"), ("libreoffice_help", "ja"), ("libreoffice_help", "hi"), ("quran", "tr")):
        with gzip.open(DATA / source / f"{language}.tsv.gz", "rt", encoding="utf-8") as file:
            texts += [line.rstrip("\n").partition("\t")[2] for line in file][::10]
    (tmp_path / "sentencepiece.bpe.model").write_bytes(xlmr_model(texts, size=4000))
    # Their tokenizer finds special tokens in text, and ours does not: that is the point of ours.
    same_ids(read_hf_vocabulary(tmp_path), XLMRobertaTokenizer.from_pretrained(tmp_path), [t for t in texts if "<" not in t])


def real_lines():
    texts = []
    for source, language in (("wesnoth", "de"), ("wesnoth", "ru"), ("quran", "tr")):
        with gzip.open(DATA / source / f"{language}.tsv.gz", "rt", encoding="utf-8") as file:
            texts += [line.rstrip("\n").partition("\t")[2] for line in file][::10]
    return [text for text in texts if "<" not in text]


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no texts at {DATA}")
def test_scores_as_they_come_give_the_ids_of_sentencepiece_and_nearly_always_of_transformers(tmp_path):
    texts = real_lines()
    (tmp_path / "sentencepiece.bpe.model").write_bytes(xlmr_model(texts, size=4000, exact=False))
    as_they_come, rounded = read_hf_vocabulary(tmp_path), read_hf_vocabulary(tmp_path, round_scores=True)
    assert "no multiples of 1/64" in as_they_come.remarks[0]
    assert "were rounded" in rounded.remarks[0]
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "sentencepiece.bpe.model"))
    theirs = XLMRobertaTokenizer.from_pretrained(tmp_path)(texts, add_special_tokens=False)["input_ids"]

    def share(one, other):
        return sum(a != b for a, b in zip(one, other, strict=True)) / len(texts)

    def exported(imported, folder):
        write_hf_tokenizer(imported.vocabulary, folder, max_length=10**6)
        return AutoTokenizer.from_pretrained(folder)(texts, add_special_tokens=False)["input_ids"]

    kept, changed = ([one.vocabulary.encode(text).tolist() for text in texts] for one in (as_they_come, rounded))
    # <unk> is theirs 0 and ours 1; learned pieces come after 3 special ones there and after 5 here.
    assert kept == [[piece + 2 if piece else 1 for piece in ids] for ids in processor.encode(texts)]
    differ = {
        "kept, theirs": share([as_they_come.ids[ids].tolist() for ids in kept], theirs),
        "kept, exported": share(kept, exported(as_they_come, tmp_path / "kept")),
        "rounded, theirs": share([rounded.ids[ids].tolist() for ids in changed], theirs),
        "rounded, exported": share(changed, exported(rounded, tmp_path / "rounded")),
    }
    print({name: f"{value:.4f}" for name, value in differ.items()}, len(texts))
    assert differ["kept, theirs"] <= 0.002
    assert differ["kept, exported"] <= 0.002
    assert differ["rounded, exported"] == 0.0
    assert differ["rounded, theirs"] <= 0.01


def test_weights_permuted_give_each_piece_its_row(xlmr, lines):
    imported = read_hf_vocabulary(xlmr)
    theirs = XLMRobertaTokenizer.from_pretrained(xlmr)
    table = np.random.default_rng(0).normal(size=(len(theirs), 4))
    text = lines[3]
    assert (table[imported.ids][imported.vocabulary.encode(text)] == table[theirs(text, add_special_tokens=False)["input_ids"]]).all()


def test_byte_pieces_are_unused_as_in_transformers(tmp_path, lines):
    (tmp_path / "sentencepiece.bpe.model").write_bytes(xlmr_model(lines, size=900, byte_fallback=True))
    imported = read_hf_vocabulary(tmp_path)
    same_ids(imported, XLMRobertaTokenizer.from_pretrained(tmp_path), [*lines[::10], "one ☃ two"])
    assert any("256 byte pieces" in remark for remark in imported.remarks)


def test_an_exported_folder_comes_back(tmp_path, lines):
    vocabulary = train_vocabulary(lines, VocabularySpec(size=700))
    write_hf_tokenizer(vocabulary, tmp_path, max_length=128)
    imported = read_hf_vocabulary(tmp_path)
    assert imported.vocabulary.fingerprint == vocabulary.fingerprint
    assert imported.ids.tolist() == list(range(vocabulary.size))
    other = train_vocabulary(lines, VocabularySpec(size=600))
    (tmp_path / "spm.model").write_bytes(other.serialized_model)
    with pytest.raises(UserError, match=f"{vocabulary.fingerprint}.*{other.fingerprint}"):
        read_hf_vocabulary(tmp_path)
    again = tmp_path / "again"
    AutoTokenizer.from_pretrained(tmp_path).save_pretrained(again)
    with pytest.raises(UserError, match=r"spm\.model is missing: transformers does not save it"):
        read_hf_vocabulary(again)


def test_an_imported_vocabulary_can_be_exported(xlmr, tmp_path, lines):
    imported = read_hf_vocabulary(xlmr)
    write_hf_tokenizer(imported.vocabulary, tmp_path / "ours", max_length=128)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    for line in lines[::10]:
        assert tokenizer(line)["input_ids"] == [2, *imported.vocabulary.encode(line).tolist(), 3]


def test_the_number_of_rows_is_checked(xlmr):
    size = read_hf_vocabulary(xlmr).vocabulary.size
    config = xlmr / "config.json"
    config.write_text(json.dumps({"vocab_size": size}), encoding="utf-8")
    assert read_hf_vocabulary(xlmr).remarks == ()
    config.write_text(json.dumps({"vocab_size": size + 7}), encoding="utf-8")
    assert read_hf_vocabulary(xlmr).remarks == ()  # import_folder counts rows without a piece
    config.write_text(json.dumps({"vocab_size": size - 1}), encoding="utf-8")
    with pytest.raises(UserError, match=rf"vocab_size is {size - 1}, .* <mask> has none"):
        read_hf_vocabulary(xlmr)


def test_a_tokenizer_file_of_another_model_is_noticed(xlmr, tmp_path, lines):
    XLMRobertaTokenizer.from_pretrained(xlmr).save_pretrained(xlmr)
    assert read_hf_vocabulary(xlmr).ids[0] == 1
    document = json.loads((xlmr / "tokenizer.json").read_text(encoding="utf-8"))
    document["model"]["vocab"][300][0] = "another"
    (xlmr / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UserError, match="row 300 is 'another' here"):
        read_hf_vocabulary(xlmr)


def test_models_whose_rows_cannot_be_told_are_refused(tmp_path, lines):
    for settings in ({"control_symbols": ["<mask>"]}, {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}):
        (tmp_path / "sentencepiece.bpe.model").write_bytes(xlmr_model(lines, **settings))
        with pytest.raises(UserError, match="its rows cannot be told"):
            read_hf_vocabulary(tmp_path)
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"not a model")
    with pytest.raises(UserError, match="not a SentencePiece model"):
        read_hf_vocabulary(tmp_path)


def test_other_tokenizers_are_refused_with_what_can_be_done(tmp_path):
    with pytest.raises(UserError, match="no tokenizer here that can be read"):
        read_hf_vocabulary(tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"WordPiece tokenizer.*shaped like XLM-R's"):
        read_hf_vocabulary(tmp_path)
    byte_level = Tokenizer(models.BPE({"a": 0}, []))
    byte_level.pre_tokenizer = pre_tokenizers.ByteLevel()
    cases = {
        "byte-level BPE tokenizer": byte_level,
        "WordPiece tokenizer": Tokenizer(models.WordPiece({"[UNK]": 0})),
        "Unigram tokenizer has no": Tokenizer(models.Unigram([("a", 0.0)], 0, False)),
    }
    for sentence, tokenizer in cases.items():
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(UserError, match=sentence):
            read_hf_vocabulary(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="not JSON"):
        read_hf_vocabulary(tmp_path)


def test_exact_scores_are_multiples_that_change_little(lines):
    before = xlmr_model(lines, exact=False)
    old, new = (model_pb2.ModelProto.FromString(model).pieces for model in (before, with_exact_scores(before)))
    assert not all(float(piece.score * 64).is_integer() for piece in old)
    assert inexact_scores(before) > 400
    assert inexact_scores(with_exact_scores(before)) == 0
    assert all(float(piece.score * 64).is_integer() for piece in new)
    assert max(abs(one.score - other.score) for one, other in zip(old, new, strict=True)) <= 1 / 128 + 1e-9
