"""The exported tokenizer, loaded by transformers itself, against SentencePiece: ids, special tokens, decoding, use."""

import gzip
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as model_pb2
from transformers import AutoTokenizer, DataCollatorForLanguageModeling

from tests.vocab.conftest import ALPHABETS, generated_lines
from xlm.errors import UserError
from xlm.interop.tokenizer_export import write_hf_tokenizer
from xlm.vocab.spec import SPECIAL_PIECES, VocabularySpec
from xlm.vocab.train import train_vocabulary
from xlm.vocab.vocabulary import Vocabulary

DATA = Path(__file__).parents[3] / "shared" / "data"
SPECS = {
    "bytes": {},
    "folded": {"normaliser": "nmt_nfkc", "case_fold": True},
    "no bytes": {"byte_fallback": False},
    "as it is": {"normaliser": "identity"},
    "bpe": {"model_type": "bpe"},
    "bpe, no bytes": {"model_type": "bpe", "byte_fallback": False, "normaliser": "identity"},
}
ODD_TEXTS = [
    *("", " ", "   ", " one", "one ", "\tone\n", "one\r\n\r\ntwo", "one  two   three "),
    *("\u00a0\u3000one", "\u200b\u200c\u200d", "\x00\x01\x1f", "\ufeffone", "\ufffd", "x" * 300),
    *("<s>", "</s>", "<mask>", "<pad><unk>", "one<mask>two", "a <mask> b</s> c", "<s>one</s>", "<<mask>>"),
    *("<0x41>", "<0x0A><0xff>", "<0x20>", "<", "a<b", "< s>"),
    *("▁", "one▁", "▁one", "▁▁ ▁one", "one ▁ ▁ ", "▁<mask>"),
    *("①ﬁ２", "ＡＢＣ", "ﷺ", "😀👨\u200d👩\u200d👧🏽❤\ufe0f🇩🇪", "İ", "ß", "ΑΣ", "ｶﾞ", "ﾊﾟ", "\u0e01\u0e33", "A\u0e33"),
    *("e\u0301", "E\u0301a", "a\u0302\u0301", "A\u0331", "q\u0307\u0323", "\u0301a", "i\u0307", "I\u0307ki"),
    *("\u1111\u1171\u11b6", "\u03c9\u0313\u0301\u0345", "\u0646\u064e\u0627\u0653\u06da", "\u0644\u0651\u064e\u0627", "\u0928\u093c\u093f"),
]


def trained(lines, size=700, **spec):
    return train_vocabulary(lines, VocabularySpec(size=size, **spec))


@pytest.fixture(scope="module")
def lines():
    return [line for language in ALPHABETS for line in generated_lines(language, 120)]


@pytest.fixture(scope="module")
def exported(lines, tmp_path_factory):
    """Each kind of vocabulary and what transformers loads from its folder, with no network and no code of ours."""
    made = {}
    for name, spec in SPECS.items():
        # Signs and letters that the odd texts use, but not all of them: some must be unknown.
        vocabulary = trained([*lines, "a < b > c </ 0x41 mask s", "x" * 20, "é ệ"], **spec)
        folder = tmp_path_factory.mktemp("exported")
        write_hf_tokenizer(vocabulary, folder, max_length=512)
        made[name] = vocabulary, AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return made


def framed(vocabulary, text):
    return [vocabulary.bos_id, *vocabulary.encode(text).tolist(), vocabulary.eos_id]


@pytest.mark.parametrize("name", SPECS)
def test_ids_are_ours_on_lines_and_on_odd_texts(exported, lines, name):
    vocabulary, tokenizer = exported[name]
    texts = [*lines, *ODD_TEXTS, *(f"one {text} two" for text in ODD_TEXTS), *(text.upper() for text in lines[::10])]
    found = tokenizer(texts)["input_ids"]
    different = {text: (theirs, framed(vocabulary, text)) for text, theirs in zip(texts, found, strict=True)}
    # The one sequence here that no composition gives: SentencePiece's folded map keeps the capital of a decomposed İ.
    different = {t: pair for t, pair in different.items() if pair[0] != pair[1] and not (name == "folded" and "I\u0307" in t)}
    assert not different


@pytest.mark.parametrize("name", SPECS)
def test_ids_are_ours_on_any_text(exported, name):
    vocabulary, tokenizer = exported[name]
    # Surrogates are no text; U+FFF0 to U+FFF8 are unassigned, and the normaliser uses them as separators.
    alphabet = st.characters(exclude_categories=("Cs",), exclude_characters=[chr(code) for code in range(0xFFF0, 0xFFF9)])
    pieces = st.sampled_from(
        [*SPECIAL_PIECES, " ", "▁", "<", "<0x41>", "e", "\u0301", "\u0302", "\u0345", "A", "ن", "\u0653", "ا", "\u093c"]
    )

    @settings(deadline=None, max_examples=80)
    @given(st.lists(st.one_of(st.text(alphabet=alphabet, max_size=8), pieces), max_size=8))
    def check(parts):
        text = "".join(parts)
        assert tokenizer(text)["input_ids"] == framed(vocabulary, text)

    check()


@pytest.mark.parametrize("remove_extra_whitespaces", [True, False])
@pytest.mark.parametrize("add_dummy_prefix", [True, False])
@pytest.mark.parametrize("name", ["bytes", "folded", "no bytes", "bpe"])
def test_white_space_flags_of_the_model(exported, lines, tmp_path, name, add_dummy_prefix, remove_extra_whitespaces):
    proto = model_pb2.ModelProto.FromString(exported[name][0].serialized_model)
    proto.normalizer_spec.add_dummy_prefix = add_dummy_prefix
    proto.normalizer_spec.remove_extra_whitespaces = remove_extra_whitespaces
    vocabulary = Vocabulary(proto.SerializeToString())
    write_hf_tokenizer(vocabulary, tmp_path, max_length=512)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    texts = [text for text in [*lines[::20], *ODD_TEXTS, "\x01", "a \x01 b"] if "I\u0307" not in text]
    found = tokenizer(texts)["input_ids"]
    assert {text: ids for text, ids in zip(texts, found, strict=True) if ids != framed(vocabulary, text)} == {}
    for text in lines[::50]:
        assert tokenizer.decode(vocabulary.encode("  " + text).tolist()) == vocabulary.decode(vocabulary.encode("  " + text))


def test_special_tokens_are_there_and_can_be_asked_for(exported):
    vocabulary, tokenizer = exported["bytes"]
    assert [tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id] == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.mask_token) == ("<s>", "</s>", "<mask>")
    assert sorted(tokenizer.all_special_ids) == [0, 1, 2, 3, 4]
    assert len(tokenizer) == tokenizer.vocab_size == vocabulary.size
    assert tokenizer.model_max_length == 512
    asked = tokenizer(f"{generated_lines('en', 1)[0]} <mask>", split_special_tokens=False)["input_ids"]
    assert asked == [2, *vocabulary.encode(generated_lines("en", 1)[0]).tolist(), 4, 3]
    # Having asked once changes nothing for the next text.
    assert tokenizer.mask_token_id not in tokenizer("a <mask>")["input_ids"]


def test_the_bare_library_does_not_find_special_tokens_in_text_either(exported):
    vocabulary, tokenizer = exported["no bytes"]
    bare = type(tokenizer.backend_tokenizer).from_file(str(Path(tokenizer.name_or_path) / "tokenizer.json"))
    for text in ODD_TEXTS:
        assert bare.encode(text).ids == framed(vocabulary, text)


def test_it_is_the_same_after_transformers_has_saved_it(exported, tmp_path):
    vocabulary, tokenizer = exported["folded"]
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for text in ("a <mask> b", "<s>", "one < two"):
        assert again(text)["input_ids"] == framed(vocabulary, text)
    assert again.mask_token_id == 4


def test_beside_a_model_of_xlm_r_it_stays_itself(exported, tmp_path):
    vocabulary, _ = exported["bytes"]
    write_hf_tokenizer(vocabulary, tmp_path, max_length=64)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "xlm-roberta", "vocab_size": vocabulary.size}), encoding="utf-8")
    assert AutoTokenizer.from_pretrained(tmp_path)("one <s>")["input_ids"] == framed(vocabulary, "one <s>")


@pytest.mark.parametrize("token_types", [1, 2])
def test_pairs_are_the_default_form_of_tlm(lines, tmp_path, token_types):
    vocabulary = trained(lines, normaliser="identity")
    write_hf_tokenizer(vocabulary, tmp_path, max_length=512, token_types=token_types)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    first, second = lines[0], lines[1]
    batch = tokenizer(first, second, return_token_type_ids=True)
    ids = framed(vocabulary, first)
    assert batch["input_ids"] == [*ids, *vocabulary.encode(second).tolist(), 3]
    assert batch["token_type_ids"] == [0] * len(ids) + [token_types - 1] * (len(batch["input_ids"]) - len(ids))
    assert ("token_type_ids" in tokenizer(first, second)) == (token_types == 2)


@pytest.mark.parametrize("name", SPECS)
def test_text_comes_back_as_from_sentencepiece(exported, lines, name):
    vocabulary, tokenizer = exported[name]
    for text in [*lines[::10], "a<b", " one  two ", "a <mask> b", "<0x41>"]:
        ids = [token for token in framed(vocabulary, text) if token != vocabulary.unk_id]
        assert tokenizer.decode(ids, skip_special_tokens=True) == vocabulary.decode(ids)


def test_offsets_point_at_the_text(exported, lines):
    vocabulary, tokenizer = exported["folded"]
    for text in [*lines[::20], "Cafe\u0301 < two"]:
        batch = tokenizer(text.upper(), return_offsets_mapping=True, add_special_tokens=False)
        for token, (begin, end) in zip(batch["input_ids"], batch["offset_mapping"], strict=True):
            piece = vocabulary.pieces[token].replace("▁", "")
            if not vocabulary.is_byte[token] and piece:
                assert vocabulary.normalise(text.upper()[begin:end]) == piece


def test_padding_and_the_collator_of_masked_language_modelling(exported, lines):
    vocabulary, tokenizer = exported["bytes"]
    batch = tokenizer(lines[:8], padding=True, return_tensors="pt")
    assert ((batch["input_ids"] == 0) == (batch["attention_mask"] == 0)).all()
    torch.manual_seed(0)
    masked = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3)([tokenizer(line) for line in lines[:64]])
    chosen = masked["labels"] != -100
    assert (masked["input_ids"][chosen] == vocabulary.mask_id).float().mean() > 0.7
    assert not set(masked["labels"][chosen].tolist()) & set(vocabulary.special_ids)


def test_what_has_no_equal_is_refused_in_a_sentence(exported, tmp_path):
    model = exported["bytes"][0].serialized_model

    def changed(change):
        proto = model_pb2.ModelProto.FromString(model)
        change(proto)
        return Vocabulary(proto.SerializeToString())

    cases = {
        "type char": lambda proto: setattr(proto.trainer_spec, "model_type", 4),
        "word sign at the end": lambda proto: setattr(proto.trainer_spec, "treat_whitespace_as_suffix", True),
        "keeps spaces": lambda proto: setattr(proto.normalizer_spec, "escape_whitespaces", False),
        "user-defined pieces": lambda proto: setattr(proto.pieces[400], "type", model_pb2.ModelProto.SentencePiece.USER_DEFINED),
    }
    for sentence, change in cases.items():
        with pytest.raises(UserError, match=sentence):
            write_hf_tokenizer(changed(change), tmp_path / "none", max_length=8)
    assert not (tmp_path / "none").exists()


def test_unused_pieces_are_never_given(exported, lines, tmp_path):
    vocabulary, _ = exported["bytes"]
    proto = model_pb2.ModelProto.FromString(vocabulary.serialized_model)
    often = max((p for p in proto.pieces if p.type == 1 and len(p.piece) > 3), key=lambda piece: piece.score)
    often.type = model_pb2.ModelProto.SentencePiece.UNUSED
    fewer = Vocabulary(proto.SerializeToString())
    write_hf_tokenizer(fewer, tmp_path, max_length=512)
    found = AutoTokenizer.from_pretrained(tmp_path)(lines)["input_ids"]
    assert found == [framed(fewer, line) for line in lines]
    assert found != [framed(vocabulary, line) for line in lines]


def real_texts():
    """Yield the lines of each file of texts there is, whatever the format around them."""
    for path in sorted(path for path in DATA.rglob("*") if path.is_file()):
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        yield text.decode("utf-8").split("\n")


def real_lines(step, first=0):
    """Return every ``step``-th distinct line of all texts, from line ``first`` on."""
    return list(dict.fromkeys(line for lines in real_texts() for line in lines))[first::step]


def trained_on_real_lines(name, size=3000):
    """Return a vocabulary of every thousandth line; the tests below compare on others."""
    return trained([line.replace("\t", " ") for line in real_lines(1000) if line], size=size, **SPECS[name])


def loaded(vocabulary, folder):
    write_hf_tokenizer(vocabulary, folder, max_length=10**6)
    return AutoTokenizer.from_pretrained(folder)


def different(vocabulary, tokenizer, lines):
    ours = vocabulary.encode_batch(lines)
    found = tokenizer(lines)["input_ids"]
    return [line for line, ids, theirs in zip(lines, ours, found, strict=True) if theirs != [2, *ids.tolist(), 3]]


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no texts at {DATA}")
@pytest.mark.parametrize("name", ["bytes", "folded"])
def test_ids_are_ours_on_real_lines(tmp_path, name):
    vocabulary = trained_on_real_lines(name)
    assert not different(vocabulary, loaded(vocabulary, tmp_path), real_lines(200, first=100))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not DATA.is_dir(), reason=f"no texts at {DATA}")
@pytest.mark.parametrize("name", ["bytes", "folded"])
def test_ids_are_ours_on_every_line(tmp_path, name):
    vocabulary = trained_on_real_lines(name, size=8000)
    tokenizer = loaded(vocabulary, tmp_path)
    count, wrong, seen = 0, [], set()
    for lines in real_texts():
        new = list({line: None for line in lines if hash(line) not in seen})
        seen.update(map(hash, new))
        for begin in range(0, len(new), 10_000):
            wrong += different(vocabulary, tokenizer, new[begin : begin + 10_000])
        count += len(new)
    print(f"{name}: {len(wrong)} of {count:,} distinct lines differ")
    assert not wrong
