"""The two stages from text to rows, run as a user runs them, on a small corpus of generated text."""

import importlib.util
import json
import runpy
import sys
from pathlib import Path

import pytest

from xlm.corpora.documents import Document, SentencePair
from xlm.corpora.store import write_documents, write_pairs
from xlm.runs.folder import RunFolder
from xlm.runs.stage import Stage
from xlm.seeding import keyed_generator
from xlm.shards.reader import ShardSet
from xlm.vocab.vocabulary import Vocabulary

ROOT = Path(__file__).parents[2]
SPEC = "{size: 400, case_fold: true, sampling_alpha: 0.5, max_characters: 20000}"


def write_corpus(folder: Path, seed: int = 1) -> None:
    generator = keyed_generator("pipeline text", seed)
    words = ["".join(generator.choice(list("abcdefgh"), size=4)) for _ in range(60)]
    texts = [" ".join(generator.choice(words, size=int(generator.integers(2, 12)))) for _ in range(300)]
    with Stage(folder, "corpus", {"seed": str(seed)}).write() as output:
        for language in ("en", "de"):
            documents = (Document(f"{language}{number}", text, language, "made", None) for number, text in enumerate(texts))
            write_documents(output.folder, language, documents)
        pairs = (SentencePair(str(number), text, text[::-1], "en", "de", "made") for number, text in enumerate(texts))
        write_pairs(output.folder, "en_de", pairs)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a pipeline on the run folder and return its exit code and what it printed."""
    write_corpus(tmp_path / "run" / "corpus")
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")

    def run(name, *overrides, options=()):
        settings = [f"vocabulary={tmp_path / 'spec.yaml'}", "phases.0.sequence_length=64", *overrides]
        recipe = ROOT / "pipelines" / "recipes" / "quickstart.yaml"
        argv = [name, "--recipe", str(recipe), "--run-dir", str(tmp_path / "run"), *options]
        if name == "build_shards.py" and not options:
            argv += ["--workers", "1"]  # others would take longer to start than the work does
        monkeypatch.setattr(sys, "argv", argv + [part for setting in settings for part in ("--set", setting)])
        code = 0
        try:
            runpy.run_path(str(ROOT / "pipelines" / name), run_name="__main__")
        except SystemExit as error:
            code = error.code
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def test_text_becomes_rows_once(run, tmp_path):
    folder = RunFolder(tmp_path / "run")
    code, printed = run("build_vocab.py")
    assert code == 0, printed
    vocabulary = Vocabulary.load(folder.vocabulary)
    assert vocabulary.fingerprint in printed
    table = json.loads((folder.vocabulary / "coverage.json").read_text(encoding="utf-8"))["languages"]
    assert set(table) == {"en", "de"}
    assert table["en"]["unknown_rate"] == 0.0

    code, printed = run("build_shards.py")
    assert code == 0, printed
    shards = ShardSet(folder.shards, vocabulary.fingerprint)
    shards.verify()
    assert {(plan.corpus, plan.layout, plan.length) for plan in shards.index.plans.values()} == {
        ("en", "documents", 64),
        ("de", "documents", 64),
        ("en_de", "pairs", 64),
        ("en_de", "separate_pairs", 64),
    }
    assert "separate_pairs 64" in printed

    for name in ("build_vocab.py", "build_shards.py"):
        assert "already done" in run(name)[1]


def test_changed_inputs_build_anew(run, tmp_path):
    run("build_vocab.py")
    run("build_shards.py")
    assert "already done" not in run("build_shards.py", "phases.0.sequence_length=32")[1]
    assert "already done" not in run("build_shards.py", "shards.variants=2")[1]
    assert "already done" not in run("build_shards.py", "shards.n_way=true")[1]
    write_corpus(tmp_path / "run" / "corpus", seed=2)
    assert "already done" not in run("build_vocab.py")[1]
    assert "already done" not in run("build_shards.py")[1]


def test_who_does_the_work_and_how_shards_are_read_decides_nothing(run):
    run("build_vocab.py")
    run("build_shards.py")
    assert "already done" in run("build_shards.py", "shards.shuffle_window=2", options=["--workers", "2"])[1]


def test_shards_are_uploaded_where_the_recipe_says_so(run, tmp_path):
    run("build_vocab.py")
    folder = RunFolder(tmp_path / "run")
    storage = f"shards.storage={{url: '{(tmp_path / 'remote').as_uri()}'}}"
    code, printed = run("build_shards.py", storage)
    assert code == 0, printed
    assert "files uploaded" in printed
    here = {path.relative_to(folder.shards): path.read_bytes() for path in folder.shards.rglob("*") if path.is_file()}
    there = {path.relative_to(tmp_path / "remote"): path.read_bytes() for path in (tmp_path / "remote").rglob("*") if path.is_file()}
    assert {path: there[path] for path in here} == here

    # A stage that is done uploads what is missing there.
    (tmp_path / "remote" / "index.json").unlink()
    printed = run("build_shards.py", storage)[1]
    assert "already done" in printed
    assert (tmp_path / "remote" / "index.json").exists()


def test_n_way_pairs_are_built_and_counted(run, tmp_path):
    texts = [f"abcd efgh {number}" for number in range(40)]
    pairs = (SentencePair(str(number), text, text.upper(), "en", "fr", "made") for number, text in enumerate(texts))
    write_pairs(tmp_path / "run" / "corpus", "en_fr", pairs)
    run("build_vocab.py")
    code, printed = run("build_shards.py", "shards.n_way=true", "shards.variants=3")
    assert code == 0, printed
    assert "de_fr" in printed
    summary = json.loads((tmp_path / "run" / "shards" / "stage.json").read_text(encoding="utf-8"))["summary"]
    expected = {"keys": 300, "keys_in_three_or_more": 40, "pairs": 380, "derived_pairs": 40, "left_out": 40}
    assert summary["n_way"] == {**expected, "pairs_in_no_variant": 0, "variants_for_all": 3}
    assert "in no variant" not in printed

    # A text in three languages has three pairs, and one of them a variant.
    printed = run("build_shards.py", "shards.n_way=true")[1]
    assert (
        "note: 80 of 380 n-way pairs are in no variant (shards.variants is 1) and left out; from 3 variants on every pair is in one."
    ) in printed


def test_corpora_of_both_directions_are_no_n_way_text(run, tmp_path):
    write_pairs(tmp_path / "run" / "corpus", "de_en", [SentencePair("other", "abcd efgh", "ABCD", "de", "en", "made")])
    run("build_vocab.py")
    code, printed = run("build_shards.py", "shards.n_way=true")
    assert code == 2
    assert "there are 'de_en' and 'en_de'" in printed
    assert run("build_shards.py")[0] == 0


def test_finished_shards_are_verified(run, tmp_path):
    run("build_vocab.py")
    assert "the stage that writes 'shards' has not finished" in run("build_shards.py", options=["--verify"])[1]
    run("build_shards.py")
    code, printed = run("build_shards.py", options=["--verify"])
    assert code == 0
    assert "3 token shards, 7 blocks of row plans and the piece counts" in printed
    shards = tmp_path / "run" / "shards"
    whole = bytearray((shards / "tokens" / "de-00000.arrow").read_bytes())
    whole[len(whole) // 2] ^= 1
    (shards / "tokens" / "de-00000.arrow").write_bytes(whole)
    code, printed = run("build_shards.py", options=["--verify"])
    assert code == 2
    assert "de-00000.arrow: the checksum of this file is not the one in the index" in printed


def test_a_phase_without_n_way_pairs_ends_in_one_sentence(run, tmp_path):
    write_pairs(tmp_path / "run" / "corpus", "en_fr", [SentencePair("other", "abcd efgh", "ABCD", "en", "fr", "made")])
    run("build_vocab.py")
    phase = ["phases.0.languages=[de, fr]", "phases.0.objectives={tlm: {share: 1.0}}"]
    code, printed = run("build_shards.py", "shards.n_way=true", *phase)
    assert code == 2
    assert "asks for tlm, but the corpus has no pairs in its languages; available pairs: en_de, en_fr." in printed
    assert not (tmp_path / "run" / "shards").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "0"], "--workers is 0; at least 1 is needed."),
        pytest.param(
            ["--backend", "ray"],
            "pip install 'xlm[ray]'",
            marks=pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="ray is installed"),
        ),
    ],
)
def test_workers_there_cannot_be_are_one_sentence(run, tmp_path, options, message):
    run("build_vocab.py")
    code, printed = run("build_shards.py", options=options)
    assert (code, message in printed) == (2, True)
    assert not (tmp_path / "run" / "shards").exists()


def test_a_language_the_corpus_lacks_ends_in_one_sentence(run):
    run("build_vocab.py")
    code, printed = run("build_shards.py", "phases.0.languages=[en, de, sw]")
    assert code == 2
    assert "asks for language 'sw', which the corpus lacks" in printed
    assert "it has: de, en." in printed
    assert "Traceback" not in printed


def test_stages_that_have_not_run_are_named(run, tmp_path):
    code, printed = run("build_shards.py")
    assert code == 2
    assert "the stage that writes 'vocabulary' has not finished" in printed
    (tmp_path / "run" / "corpus" / "stage.json").unlink()
    code, printed = run("build_vocab.py")
    assert code == 2
    assert "the stage that writes 'corpus' has not finished" in printed
