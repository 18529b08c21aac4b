"""`import_hf.py` as a user runs it: a small XLM-R-shaped folder comes in, scores alike, and training starts from it."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import sentencepiece
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, XLMRobertaConfig, XLMRobertaForMaskedLM, XLMRobertaTokenizer

from tests.pipelines.scripts import call
from xlm.config.model import ModelConfig
from xlm.corpora.documents import Document
from xlm.corpora.store import write_documents
from xlm.errors import UserError
from xlm.interop.self_check import TEXTS
from xlm.interop.tokenizer_export import write_hf_tokenizer
from xlm.runs.stage import Stage, read_record
from xlm.training.assembly import initial_model
from xlm.training.weights import load_model_weights
from xlm.vocab.vocabulary import Vocabulary

ROOT = Path(__file__).parents[2]
POSITIONS = 200
EXTRA = 3


def xlm_r(folder, *, extra_rows=0, **changes):
    """Write a folder as XLM-R's is: its own SentencePiece model, ids shifted by one, a mask after the last piece."""
    folder.mkdir()
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 4), model_writer=model, vocab_size=300, hard_vocab_limit=False, num_threads=1, minloglevel=2
    )
    (folder / "sentencepiece.bpe.model").write_bytes(model.getvalue())
    pieces = len(XLMRobertaTokenizer.from_pretrained(folder))
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40, "type_vocab_size": 1}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = XLMRobertaForMaskedLM(
            XLMRobertaConfig(vocab_size=pieces + extra_rows, max_position_embeddings=POSITIONS + 2, **sizes, **changes)
        ).eval()
        with torch.no_grad():
            for parameter in theirs.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.1)
    theirs.save_pretrained(folder)
    return theirs


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Their model, their folder, and what came of it."""
    root = tmp_path_factory.mktemp("import")
    theirs = xlm_r(root / "theirs")
    assert call("import_hf.py", root / "theirs", root / "ours") == 0
    return theirs, root / "theirs", root / "ours"


def test_text_is_scored_alike_with_our_ids(imported):
    theirs, folder, ours = imported
    tokenizer = XLMRobertaTokenizer.from_pretrained(folder)
    vocabulary, model = Vocabulary.load(ours), load_model_weights(ours).build()
    worst = 0.0
    for text in TEXTS:
        ids = [vocabulary.bos_id, *vocabulary.encode(text).tolist(), vocabulary.mask_id, vocabulary.eos_id]
        batch = tokenizer(text, return_tensors="pt")["input_ids"]
        batch = torch.cat([batch[:, :-1], torch.tensor([[tokenizer.mask_token_id]]), batch[:, -1:]], dim=1)
        # The same piece on both sides, whatever its number.
        assert tokenizer.convert_ids_to_tokens(batch[0].tolist()) == [vocabulary.pieces[piece] for piece in ids]
        order = torch.tensor(tokenizer.convert_tokens_to_ids(list(vocabulary.pieces)))
        with torch.no_grad():
            expected = theirs(input_ids=batch).logits[0][:, order]
            states = model.encoder(torch.tensor(ids), torch.arange(len(ids)), torch.tensor([0, len(ids)], dtype=torch.int32))
            worst = max(worst, float((model.logits(states) - expected).abs().max()))
    print(f"XLM-R-shaped folder: worst difference {worst:.1e}")
    assert worst <= 1e-5


def test_the_folder_says_what_it_holds(imported):
    _, _, ours = imported
    section = yaml.safe_load((ours / "model.yaml").read_text(encoding="utf-8"))["model"]
    assert ModelConfig(**section) == load_model_weights(ours).config
    described = json.loads((ours / "model.json").read_text(encoding="utf-8"))
    assert described["step"] == 0
    assert described["vocabulary_fingerprint"] == Vocabulary.load(ours).fingerprint
    assert (ours / "extras.safetensors").is_file()  # the two rows of positions before the first


def test_training_starts_from_it(imported):
    _, _, ours = imported
    vocabulary = Vocabulary.load(ours)
    section = yaml.safe_load((ours / "model.yaml").read_text(encoding="utf-8"))["model"]
    inputs = SimpleNamespace(plan=SimpleNamespace(languages=("de", "en")), vocabulary=vocabulary, embeddings=None)
    recipe = SimpleNamespace(model=ModelConfig(**section), seed=1, start_from=ours)
    state, expected = initial_model(recipe, inputs).state_dict(), load_model_weights(ours).state_dict
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in expected)
    recipe.model = ModelConfig(**{**section, "layers": 3})
    with pytest.raises(UserError, match=r"its layers is 2, the recipe's model\.layers is 3"):
        initial_model(recipe, inputs)


def test_a_run_takes_its_vocabulary_over(imported, tmp_path, capsys):
    _, _, ours = imported
    with Stage(tmp_path / "corpus", "corpus", {"text": "made"}).write() as output:
        write_documents(output.folder, "en", (Document(str(number), text, "en", "made", None) for number, text in enumerate(TEXTS)))
    recipe = ["--recipe", ROOT / "pipelines" / "recipes" / "quickstart.yaml", "--set", f"vocabulary={ours}", "--run-dir", tmp_path]
    assert call("build_vocab.py", *recipe) == 0
    assert Vocabulary.load(tmp_path / "vocabulary").fingerprint == Vocabulary.load(ours).fingerprint
    assert read_record(tmp_path / "vocabulary").summary["fingerprint"] == Vocabulary.load(ours).fingerprint
    capsys.readouterr()
    assert call("build_vocab.py", *recipe) == 0
    assert "already done" in capsys.readouterr().out


def test_it_goes_out_again_as_it_came_in(imported, tmp_path, capsys):
    _, _, ours = imported
    assert call("export_hf.py", "--checkpoint", ours, tmp_path / "out") == 0
    assert "XLMRobertaForMaskedLM" in capsys.readouterr().out
    assert call("import_hf.py", tmp_path / "out", tmp_path / "back") == 0
    before, after = load_model_weights(ours), load_model_weights(tmp_path / "back")
    assert after.vocabulary_fingerprint == before.vocabulary_fingerprint
    assert after.config == before.config
    assert all(torch.equal(tensor, after.state_dict[name]) for name, tensor in before.state_dict.items())


@pytest.mark.parametrize("tied", [True, False])
def test_what_we_have_no_place_for_goes_out_again(tied, tmp_path, capsys):
    theirs = xlm_r(tmp_path / "theirs", tie_word_embeddings=tied)
    before = load_file(tmp_path / "theirs" / "model.safetensors")
    before["roberta.pooler.dense.weight"] = torch.randn(24, 24, generator=torch.Generator().manual_seed(0))
    save_file(before, tmp_path / "theirs" / "model.safetensors", {"format": "pt"})
    assert call("import_hf.py", tmp_path / "theirs", tmp_path / "ours") == 0
    assert call("export_hf.py", "--checkpoint", tmp_path / "ours", tmp_path / "out") == 0
    assert "tensors that import had kept apart" in capsys.readouterr().out
    after = load_file(tmp_path / "out" / "model.safetensors")
    order = XLMRobertaTokenizer.from_pretrained(tmp_path / "theirs").convert_tokens_to_ids(list(Vocabulary.load(tmp_path / "ours").pieces))
    assert after.keys() == before.keys()
    for name, tensor in before.items():
        # Rows of pieces in the order of our ids; one row of positions fewer before the first, since our padding piece is 0.
        expected = tensor[order] if tensor.shape[0] == theirs.config.vocab_size else tensor
        expected = expected[1:] if "position_embeddings" in name else expected
        assert torch.equal(after[name], expected), name


def test_a_folder_with_our_ids_goes_out_bit_for_bit(imported, tmp_path):
    _, _, ours = imported
    vocabulary = Vocabulary.load(ours)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 64}
    before = BertForMaskedLM(BertConfig(vocab_size=vocabulary.size, **sizes))
    before.save_pretrained(tmp_path / "theirs")
    write_hf_tokenizer(vocabulary, tmp_path / "theirs", max_length=64)
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    tensors |= {"bert.pooler.dense.bias": torch.arange(24.0), "cls.seq_relationship.weight": torch.ones(2, 24)}
    save_file(tensors, tmp_path / "theirs" / "model.safetensors", {"format": "pt"})
    assert call("import_hf.py", tmp_path / "theirs", tmp_path / "ours") == 0
    assert call("export_hf.py", "--checkpoint", tmp_path / "ours", tmp_path / "out") == 0
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert after.keys() == tensors.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in tensors.items())
    # Another family has no place for them.
    assert call("export_hf.py", "--checkpoint", tmp_path / "ours", "--family", "albert", tmp_path / "other") == 2
    (tmp_path / "ours" / "extras.safetensors").write_bytes(b"damaged")
    assert call("export_hf.py", "--checkpoint", tmp_path / "ours", tmp_path / "other") == 2


def test_scores_that_do_not_add_up_are_said_and_can_be_rounded(imported, tmp_path, capsys):
    _, theirs, _ = imported
    assert call("import_hf.py", theirs, tmp_path / "as-it-is") == 0
    assert "pieces are no multiples of 1/64" in capsys.readouterr().out
    kept = Vocabulary.load(tmp_path / "as-it-is")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(theirs / "sentencepiece.bpe.model"))
    for text in TEXTS:
        assert [kept.pieces[piece] for piece in kept.encode(text)] == processor.encode(text, out_type=str)
    assert call("export_hf.py", "--checkpoint", tmp_path / "as-it-is", tmp_path / "out") == 0
    assert "pieces are no multiples of 1/64" in capsys.readouterr().out
    assert call("import_hf.py", theirs, tmp_path / "rounded", "--round-scores") == 0
    assert "pieces were rounded to multiples of 1/64" in capsys.readouterr().out
    assert Vocabulary.load(tmp_path / "rounded").fingerprint != kept.fingerprint
    assert call("export_hf.py", "--checkpoint", tmp_path / "rounded", tmp_path / "again") == 0
    assert "1/64" not in capsys.readouterr().out


def test_rows_without_a_piece_are_left_out_when_allowed(tmp_path, capsys):
    theirs = xlm_r(tmp_path / "theirs", extra_rows=EXTRA)
    assert call("import_hf.py", tmp_path / "theirs", tmp_path / "ours") == 2
    assert f"{EXTRA} of them" in capsys.readouterr().err
    assert not (tmp_path / "ours").exists()
    assert call("import_hf.py", tmp_path / "theirs", tmp_path / "ours", "--allow-extra-rows") == 0
    assert f"{EXTRA} rows of the embedding table belong to no piece and are left out" in capsys.readouterr().out
    assert load_model_weights(tmp_path / "ours").vocabulary_size == theirs.config.vocab_size - EXTRA


def test_mistakes_are_sentences_and_leave_nothing(tmp_path, capsys):
    assert call("import_hf.py", tmp_path / "nowhere", tmp_path / "ours") == 2
    assert "there is no such folder" in capsys.readouterr().err
    theirs = xlm_r(tmp_path / "theirs")
    with torch.no_grad():
        theirs.lm_head.dense.weight[0, 0] = float("nan")
    theirs.save_pretrained(tmp_path / "theirs")
    assert call("import_hf.py", tmp_path / "theirs", tmp_path / "ours") == 2
    assert "tensor 'lm_head.dense.weight' holds NaN" in capsys.readouterr().err
    (tmp_path / "theirs" / "config.json").write_text(json.dumps({"model_type": "xlm-robertta", "vocab_size": 9}), encoding="utf-8")
    assert call("import_hf.py", tmp_path / "theirs", tmp_path / "ours") == 2
    assert "did you mean 'xlm-roberta'?" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]
