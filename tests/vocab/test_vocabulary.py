"""The vocabulary: ids against SentencePiece itself, its fingerprint, and text that tries to inject special ids."""

import json
import pickle

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from xlm.errors import UserError
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary
from xlm.vocab.vocabulary import Vocabulary


def changed(vocabulary, change):
    proto = model_pb2.ModelProto.FromString(vocabulary.serialized_model)
    change(proto)
    return Vocabulary(proto.SerializeToString())


def test_ids_are_those_of_sentencepiece(vocabulary, training_lines):
    oracle = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.serialized_model)
    encoded = vocabulary.encode_batch(training_lines)
    assert [ids.tolist() for ids in encoded] == oracle.encode(training_lines)
    assert encoded[0].dtype == np.int32
    assert vocabulary.encode(training_lines[3]).tolist() == encoded[3].tolist()
    assert vocabulary.encode_batch([]) == []
    assert len(vocabulary.encode("")) == 0


def test_folding_and_normalisation_belong_to_the_model(vocabulary, training_lines):
    line = training_lines[0]
    assert vocabulary.encode(line.upper()).tolist() == vocabulary.encode(line).tolist()
    assert vocabulary.decode(vocabulary.encode(line.upper())) == line
    assert vocabulary.normalise("  Ｔｅｓｔ   ① ") == "test 1"


@pytest.mark.parametrize("text", ["<mask>", "<s>", "</s>", "<pad>", "<unk>", "a <mask> b</s>", "<s><mask></s>", "▁<mask>", "<0x0A>"])
def test_text_never_yields_a_special_id(vocabulary, text):
    assert not set(vocabulary.encode(text).tolist()) & set(vocabulary.special_ids)
    assert not set(vocabulary.encode_with_offsets(text)[0].tolist()) & set(vocabulary.special_ids)
    assert vocabulary.decode(vocabulary.encode(text)).replace(" ", "") == text.lower().replace("▁", "").replace(" ", "")


@given(st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=40))
def test_any_text_encodes_without_special_ids(vocabulary, text):
    ids, offsets = vocabulary.encode_with_offsets(text)
    assert ids.tolist() == vocabulary.encode(text).tolist()
    # With byte fallback nothing is unknown either.
    assert not set(ids.tolist()) & set(vocabulary.special_ids)
    assert offsets.shape == (len(ids), 2)
    assert (np.diff(offsets[:, 0]) >= 0).all()
    assert ((offsets >= 0) & (offsets <= len(text))).all()


def test_word_starts_and_bytes(vocabulary):
    assert vocabulary.is_word_start.tolist() == [piece.startswith("▁") for piece in vocabulary.pieces]
    assert vocabulary.is_byte.sum() == 256
    assert not vocabulary.is_word_start[list(vocabulary.special_ids)].any()
    ids = vocabulary.encode("one two 三")
    assert vocabulary.is_word_start[ids].sum() == 3


def test_the_token_type_is_the_smallest_that_fits(vocabulary):
    assert vocabulary.token_dtype == np.uint16
    filler = [model_pb2.ModelProto.SentencePiece(piece=f"x{number}", score=-20) for number in range(65_536 - vocabulary.size)]
    full = changed(vocabulary, lambda proto: proto.pieces.extend(filler))
    assert full.size == 65_536
    assert full.token_dtype == np.uint16
    one_more = changed(full, lambda proto: proto.pieces.append(model_pb2.ModelProto.SentencePiece(piece="y", score=-20)))
    assert one_more.token_dtype == np.uint32


def test_the_fingerprint_ignores_where_and_how_it_was_trained(tmp_path, training_lines):
    """SentencePiece embeds the input path in the model's bytes; the pieces are the same."""
    models = []
    for name in ("one.txt", "another.txt"):
        (tmp_path / name).write_text("\n".join(training_lines), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(tmp_path / name),
            model_prefix=str(tmp_path / name),
            vocab_size=700,
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            control_symbols=["<mask>"],
            shuffle_input_sentence=False,
            num_threads=1,
            byte_fallback=True,
            minloglevel=2,
        )
        models.append(Vocabulary((tmp_path / f"{name}.model").read_bytes()))
    assert models[0].serialized_model != models[1].serialized_model
    assert models[0].fingerprint == models[1].fingerprint


def test_the_fingerprint_sees_what_changes_ids(vocabulary, training_lines):
    def swap(proto):
        first, second = proto.pieces[400].piece, proto.pieces[401].piece
        proto.pieces[400].piece, proto.pieces[401].piece = second, first

    changes = {
        "score": lambda proto: setattr(proto.pieces[500], "score", proto.pieces[500].score - 0.25),
        "order": swap,
        "type": lambda proto: setattr(proto.pieces[500], "type", model_pb2.ModelProto.SentencePiece.UNUSED),
        "one piece fewer": lambda proto: proto.pieces.pop(),
        "dummy prefix": lambda proto: setattr(proto.normalizer_spec, "add_dummy_prefix", False),
        "white space": lambda proto: setattr(proto.normalizer_spec, "remove_extra_whitespaces", False),
        "character map": lambda proto: setattr(proto.normalizer_spec, "precompiled_charsmap", b""),
        "model type": lambda proto: setattr(proto.trainer_spec, "model_type", 2),
    }
    fingerprints = {name: changed(vocabulary, change).fingerprint for name, change in changes.items()}
    assert len({vocabulary.fingerprint, *fingerprints.values()}) == len(changes) + 1
    unfolded = train_vocabulary(training_lines, VocabularySpec(size=800, case_fold=False))
    assert unfolded.fingerprint != vocabulary.fingerprint
    same = changed(vocabulary, lambda proto: setattr(proto.trainer_spec, "model_prefix", "elsewhere"))
    assert same.fingerprint == vocabulary.fingerprint


def test_saved_and_loaded(tmp_path, vocabulary):
    vocabulary.save(tmp_path, VocabularySpec(size=800, case_fold=True))
    loaded = Vocabulary.load(tmp_path)
    assert (loaded.pieces, loaded.fingerprint) == (vocabulary.pieces, vocabulary.fingerprint)
    description = json.loads((tmp_path / "vocabulary.json").read_text(encoding="utf-8"))
    assert description["special_ids"] == {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, "<mask>": 4}
    assert description["spec"]["case_fold"] is True
    assert pickle.loads(pickle.dumps(loaded)).encode("a b").tolist() == loaded.encode("a b").tolist()


def test_missing_damaged_and_foreign_models_are_sentences(tmp_path, vocabulary, training_lines):
    with pytest.raises(UserError, match="no vocabulary here"):
        Vocabulary.load(tmp_path)
    vocabulary.save(tmp_path, VocabularySpec(size=800))
    for damaged in (b"", b"not a model", vocabulary.serialized_model[: len(vocabulary.serialized_model) // 2]):
        (tmp_path / "spm.model").write_bytes(damaged)
        with pytest.raises(UserError, match=r"spm\.model: this vocabulary is damaged"):
            Vocabulary.load(tmp_path)
    other = train_vocabulary(training_lines, VocabularySpec(size=700))
    (tmp_path / "spm.model").write_bytes(other.serialized_model)
    with pytest.raises(UserError, match=f"{vocabulary.fingerprint}.*{other.fingerprint}"):
        Vocabulary.load(tmp_path)
    (tmp_path / "vocabulary.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="description is damaged"):
        Vocabulary.load(tmp_path)


def test_other_special_pieces_are_refused(vocabulary):
    def as_user_symbol(proto):
        proto.pieces[4].type = model_pb2.ModelProto.SentencePiece.USER_DEFINED

    with pytest.raises(UserError, match="not control symbols"):
        changed(vocabulary, as_user_symbol)
    with pytest.raises(UserError, match="<pad> <unk> <s> </s> <mask> are expected"):
        changed(vocabulary, lambda proto: setattr(proto.pieces[4], "piece", "[MASK]"))
