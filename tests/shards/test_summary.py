"""What the stage says of its shards: sums over corpora and plans, one line each, notes of what is never drawn."""

from types import SimpleNamespace

from xlm.shards.index import ShardIndex
from xlm.shards.n_way import NWaySummary
from xlm.shards.summary import n_way_notes, shards_summary, shards_table


def entry(name, kind, tokens, dropped):
    return SimpleNamespace(name=name, kind=kind, items=tokens // 10, tokens=tokens, sentences=0, files=[1, 2], dropped=dropped)


def plan(layout, rows, fill, dropped):
    return SimpleNamespace(layout=layout, length=64, rows=rows, fill=fill, dropped=dropped)


INDEX = ShardIndex(
    vocabulary_fingerprint="voc",
    variants=2,
    corpora={"sw": entry("sw", "monolingual", 1000, {"empty": 2}), "en_sw": entry("en_sw", "pair", 400, {"empty": 1})},
    plans={
        ("sw", "documents", 64, 0): plan("documents", 15, 0.97, {}),
        ("en_sw", "pairs", 64, 0): plan("pairs", 6, 0.91, {"too long": 3}),
        ("en_sw", "pairs", 64, 1): plan("pairs", 6, 0.93, {"too long": 3}),
        ("en_sw", "pairs", 64, 2): plan("pairs", 1, 0.5, {}),  # held out
    },
)


def test_the_record_sums_corpora_and_plans_and_counts_what_was_dropped():
    found = shards_summary(SimpleNamespace(index=INDEX, n_way=None))
    assert (found["items"], found["tokens"], found["shards"], found["rows"]) == (140, 1400, 4, 27)
    assert found["held_out_rows"] == 1
    assert found["lowest_fill"] == 0.91
    assert found["dropped"] == {"empty": 3, "too long": 6}


def test_the_table_has_a_line_a_corpus_and_plan_of_the_first_variant_documents_first():
    lines = list(shards_table(INDEX))
    assert [line.split()[0] for line in lines[1:]] == ["sw", "en_sw"]
    assert lines[2].split()[-1] == "4"  # one empty pair, three too long
    assert "91.00%" in lines[2]


def test_pairs_in_no_variant_are_told_with_what_would_show_them():
    summary = NWaySummary(
        **{**dict.fromkeys(NWaySummary.__dataclass_fields__, 0), "pairs": 9, "pairs_in_no_variant": 4, "variants_for_all": 3}
    )
    (note,) = n_way_notes(summary, 2)
    assert "4 of 9" in note
    assert "from 3 variants" in note
    assert list(n_way_notes(None, 2)) == []
