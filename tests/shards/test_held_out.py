"""What is set aside for validation is in no row of training: looked for text by text in everything that was built."""

import pytest

from xlm.corpora.documents import Document, SentencePair
from xlm.corpora.fold import fold, folded_key, pair_key
from xlm.corpora.store import write_documents, write_pairs
from xlm.errors import UserError
from xlm.shards.build import ShardBuilder
from xlm.shards.held_out import HELD_OUT
from xlm.shards.index import ShardIndex
from xlm.shards.layouts import RULES
from xlm.shards.plan_requests import PlanRequest
from xlm.shards.reader import ShardSet

LANGUAGES = ("en", "de", "zh-Hans")
PAIRS = ("en_de", "en_zh-Hans", "de_zh-Hans")
SHARE = 0.2


def texts_of(lines, language):
    return [f"{line} {language}" for line in lines]


@pytest.fixture(scope="module")
def lines(texts):
    return [document.text for document in texts["en"]][:200]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, lines):
    """Pairs from English into two languages and the sides of all pairs as documents, as the corpus stage leaves them."""
    folder = tmp_path_factory.mktemp("parallel")
    for language in LANGUAGES:
        told = [*texts_of(lines, language), *(f"{line} alone {language}" for line in lines[:60])]
        write_documents(folder, language, [Document(f"m:{folded_key(fold(text))}", text, language, "m", None) for text in told])
        if language != "en":
            sides = zip(texts_of(lines, "en"), texts_of(lines, language), strict=True)
            # A second English text with the same translation: its key says nothing of what the other side is.
            both = [*sides, *((f"{text} again", text) for text in texts_of(lines[:80], language))]
            write_pairs(folder, f"en_{language}", [SentencePair(pair_key(s), s, t, "en", language, "m") for s, t in both])
    return folder


@pytest.fixture(scope="module")
def built(corpus, vocabulary, tmp_path_factory):
    folder = tmp_path_factory.mktemp("held-out")
    requests = [
        PlanRequest(name, layout, 48) for layout, rule in RULES.items() for name in (LANGUAGES if rule.kind == "monolingual" else PAIRS)
    ]
    ShardBuilder(corpus, folder, vocabulary, items_per_shard=90, variants=2, seed=7, n_way=True, held_out_share=SHARE).build(requests)
    return ShardSet(folder, vocabulary.fingerprint)


def shown(shards, plans):
    """The folded texts, as piece ids, of all items that some row of these plans shows; and how many items."""
    found, items = set(), 0
    for plan in plans:
        for block in range(len(plan.files)):
            rows, shard = shards.block(plan.corpus, plan.layout, plan.length, plan.variant, block), shards.shard(plan.corpus, block)
            for item in sorted(set(rows.segments.item.tolist())):
                items += 1
                found.update(tuple(shard.side(side, item).tolist()) for side in range(len(shard.tokens)))
    return found, items


def test_no_text_of_a_held_out_item_is_in_any_row_of_training(built):
    index = built.index
    held = list(index.held_out())
    training = [plan for plan in index.plans.values() if plan.variant < index.variants]
    assert {(plan.corpus, plan.layout, plan.length, plan.variant) for plan in held} == {
        (name, "pairs" if "_" in name else "documents", 48, 2) for name in (*LANGUAGES, *PAIRS)
    }
    validated, _ = shown(built, held)
    trained, _ = shown(built, training)
    assert len(validated) > 100
    assert len(trained) > 400
    assert not validated & trained


@pytest.mark.parametrize("name", [*LANGUAGES, *PAIRS])
def test_about_the_share_is_held_out_and_what_is_in_no_row_is_counted(built, name):
    index = built.index
    layout = "pairs" if "_" in name else "documents"
    _, validated = shown(built, [index.plan(name, layout, 48, 2)])
    plans = [index.plan(name, layout, 48, variant) for variant in range(2)]
    counted = sum(sum(plan.dropped.values()) for plan in plans)
    _, trained = shown(built, plans)
    items = index.corpora[name].items
    if layout == "documents":  # both variants have all of them
        assert trained + counted == 2 * items
        assert all(plan.dropped == {HELD_OUT: validated} for plan in plans)
    too_long = sum(index.plan(name, layout, 48, 2).dropped.values())
    assert SHARE / 2 < (validated + too_long) / items < 2 * SHARE


def test_the_same_texts_are_held_out_however_shards_are_cut(built, corpus, vocabulary, tmp_path):
    requests = [PlanRequest("de", "documents", 48), PlanRequest("en_de", "separate_pairs", 48)]
    ShardBuilder(corpus, tmp_path, vocabulary, items_per_shard=1000, variants=1, seed=8, held_out_share=SHARE).build(requests)
    other = ShardSet(tmp_path, vocabulary.fingerprint)
    for name in ("de", "en_de"):
        ours, theirs = (shown(shards, [plan for plan in shards.index.held_out() if plan.corpus == name])[0] for shards in (built, other))
        assert ours <= theirs if name == "en_de" else ours == theirs  # n-way pairs drop what no variant takes
        assert theirs


def test_without_a_share_nothing_is_set_aside_and_another_share_is_told(built, shards_folder):
    index = ShardIndex.load(shards_folder)
    assert list(index.held_out()) == []
    index.check_held_out(0.0)
    with pytest.raises(UserError, match=r"held_out_share is 0.01, but of these shards 0.2 is set aside; build them again"):
        built.index.check_held_out(0.01)
