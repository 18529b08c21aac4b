"""`show_batch.py` as a user runs it, on a small run of generated text."""

import json
from pathlib import Path

import pytest

from tests.pipelines.scripts import call
from xlm.corpora.documents import Document, SentencePair
from xlm.corpora.store import write_documents, write_pairs
from xlm.runs.stage import Stage
from xlm.seeding import keyed_generator

ROOT = Path(__file__).parents[2]


def sentences(text):
    """Call every second word the first of a sentence."""
    starts = [0, *(place + 1 for place, character in enumerate(text) if character == " ")]
    return tuple(starts[::2])


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """Return the options that every call shares, with a vocabulary and shards behind them."""
    root = tmp_path_factory.mktemp("run")
    generator = keyed_generator("shown text")
    words = ["".join(generator.choice(list("abcdefgh"), size=4)) for _ in range(60)]
    texts = [" ".join(generator.choice(words, size=int(generator.integers(2, 12)))) for _ in range(300)]
    with Stage(root / "corpus", "corpus", {"text": "made"}).write() as output:
        for language in ("en", "de"):
            documents = (Document(f"{language}{number}", text, language, "made", sentences(text)) for number, text in enumerate(texts))
            write_documents(output.folder, language, documents)
        pairs = (SentencePair(str(number), text, text[::-1], "en", "de", "made") for number, text in enumerate(texts))
        write_pairs(output.folder, "en_de", pairs)
    (root / "spec.yaml").write_text("{size: 300, case_fold: true, max_characters: 20000}", encoding="utf-8")
    settings = [f"vocabulary={root / 'spec.yaml'}", "phases.0.sequence_length=64", "phases.0.steps=20"]
    settings += ["training.tokens_per_step=640", "training.micro_batch_tokens=320"]
    shares = {"contrastive": 0.2, "tlm": 0.2, "mlm": 0.2, "clm": 0.1, "nsp": 0.1, "sop": 0.1, "rtd": 0.1}
    objectives = {objective: {"share": share} for objective, share in shares.items()}
    settings += [f"phases.0.objectives={json.dumps(objectives)}"]
    shared = ["--recipe", ROOT / "pipelines" / "recipes" / "quickstart.yaml", "--run-dir", root]
    shared += [part for setting in settings for part in ("--set", setting)]
    assert call("build_vocab.py", *shared) == 0
    assert call("build_shards.py", *shared) == 0
    return shared


@pytest.fixture
def show(options, capsys):
    def show(*arguments):
        code = call("show_batch.py", *options, *arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return show


def test_a_step_is_printed_for_people(show):
    code, printed, _ = show("--step", 3)
    assert code == 0
    assert printed.startswith("step 3 · phase pretrain · step in phase 3 · mask rate 0.15 · rank 0 of 1\n")
    for expected in (" · contrastive · pair 0", " · tlm\n  from     en_de#", "<s>", "→", "  text     "):
        assert expected in printed


def test_every_objective_is_shown_with_its_sources(show):
    found = {}
    for step in range(4):
        code, printed, _ = show("--step", step, "--json")
        assert code == 0
        for batch in json.loads(printed)["micro_batches"]:
            for sequence in batch:
                found.setdefault(sequence["objective"], []).append(sequence)
    assert sorted(found) == ["clm", "contrastive", "mlm", "nsp", "rtd", "sop", "tlm"]
    for objective, sequences in found.items():
        for sequence in sequences:
            corpora = {source["corpus"] for source in sequence["sources"]}
            assert corpora <= ({"en_de"} if objective in ("tlm", "contrastive") else {"en", "de"})
            if objective not in ("tlm", "contrastive"):
                assert all(source["name"] == f"{source['corpus']}{source['item']}" for source in sequence["sources"])
            assert (sequence["label"] in (0, 1)) == (objective in ("nsp", "sop"))
            special = sum(token["piece"] in ("<s>", "</s>") for token in sequence["tokens"])
            assert sum(source["end"] - source["start"] for source in sequence["sources"]) == len(sequence["tokens"]) - special
        assert any(token["target"] for sequence in sequences for token in sequence["tokens"]) == (objective != "contrastive")


def test_ranks_share_the_step_that_is_shown_without_them(show):
    def sequences(*arguments):
        code, printed, _ = show("--step", 5, "--json", *arguments)
        assert code == 0
        return [json.dumps(sequence) for batch in json.loads(printed)["micro_batches"] for sequence in batch]

    whole = sequences()
    ranks = [*sequences("--world-size", 2), *sequences("--world-size", 2, "--rank", 1)]
    assert sorted(ranks) == sorted(whole)
    assert len(whole) > 10


def test_a_rank_alone_is_one_of_the_run_s(show, options):
    train = Path(options[options.index("--run-dir") + 1]) / "train"
    train.mkdir()
    record = dict.fromkeys(("recipe", "recipe_fingerprint", "deepspeed", "precision", "inputs", "tracking_key", "code", "versions"))
    (train / "run.json").write_text(json.dumps({**record, "world_size": 2, "languages": []}), encoding="utf-8")
    try:
        assert show("--step", 5, "--rank", 1) == show("--step", 5, "--rank", 1, "--world-size", 2)
        assert "there is no rank 2 among 2" in show("--step", 5, "--rank", 2)[2]
    finally:
        (train / "run.json").unlink()
        train.rmdir()


def test_the_mask_rate_is_a_number_for_programs(show):
    assert json.loads(show("--step", 1, "--json", "--set", "phases.0.mask_rate=0.123456")[1])["mask rate"] == 0.123456
    pair = ("--pair", "a", "b", "--languages", "en", "de", "--objective", "contrastive")
    assert json.loads(show(*pair, "--json")[1])["mask rate"] is None
    assert "mask rate none (unmasked)" in show(*pair)[1]


def test_given_texts_are_printed(show):
    code, printed, _ = show("--pair", "abcd efgh", "hgfe dcba", "--languages", "en", "de")
    assert code == 0
    assert "objective tlm · mask rate 0.15 · form infoxlm" in printed
    assert "  de " in printed
    code, printed, _ = show("--text", "abcd efgh", "--languages", "en")
    assert code == 0
    assert "objective mlm · mask rate 0.15" in printed
    code, printed, _ = show("--pair", "abcd", "dcba", "--languages", "en", "de", "--objective", "contrastive")
    assert code == 0
    assert "2 sequences" in printed
    assert "→" not in printed
    code, printed, _ = show("--pair", "abcd", "dcba", "--languages", "en", "--objective", "nsp")
    assert code == 0
    assert "label 0 (B follows A)" in printed
    code, printed, _ = show("--text", "abcd efgh", "--languages", "en", "--objective", "clm")
    assert code == 0
    assert "each position predicts the next piece" in printed


def test_a_text_longer_than_a_row_says_so(show):
    _, printed, _ = show("--text", "abcd " * 60, "--languages", "en")
    assert "longer than a row" in printed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--step", 20), "its steps are 0 to 19"),
        (("--step", 1, "--rank", 2, "--world-size", 2), "there is no rank 2 among 2"),
        (("--step", 1, "--world-size", 0), "--world-size 0"),
        (("--step", 1, "--rank", 1), "--rank needs --world-size"),
        (("--step", 1, "--objective", "mlm"), "--languages and --objective go with --pair and --text"),
        (("--text", "a", "--languages", "en", "--rank", 1), "--rank and --world-size go with --step"),
        (("--pair", "a", "b", "--languages", "en"), "two --languages"),
        (("--text", "a"), "--text needs --languages"),
        (("--text", "a", "--languages", "en", "--objective", "tlm"), "cannot be shown as tlm"),
    ],
)
def test_mistakes_end_in_a_sentence(show, arguments, sentence):
    code, _, errors = show(*arguments)
    assert code == 2
    assert sentence in errors
    assert "Traceback" not in errors


def test_a_run_without_a_vocabulary_names_the_stage(tmp_path, capsys):
    recipe = ROOT / "pipelines" / "recipes" / "quickstart.yaml"
    assert call("show_batch.py", "--recipe", recipe, "--run-dir", tmp_path, "--text", "a", "--languages", "en") == 2
    assert "'vocabulary' has not finished" in capsys.readouterr().err
