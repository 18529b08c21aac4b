from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_rows import reference_row
from scipy import stats

from tests.shards.stored import item_of
from xlm.batching.contrastive import pair_key_id
from xlm.batching.masking import Masked
from xlm.batching.packed_batch import OBJECTIVES, PAIRS_PER_ROW
from xlm.batching.packed_rows import NO_IDS
from xlm.batching.row_builder import RowBuilder
from xlm.mixing.batch_rows import BatchRows

CASES = [("infoxlm", "documents"), ("xlm", "full_sentences"), ("bert", "documents")]
EVERYTHING = [HealthCheck.function_scoped_fixture]


def all_rows(plan, shards, epochs=(0,)):
    """Every row of every leaf in some epochs."""
    length = plan.recipe.phases[0].sequence_length
    columns = []
    for leaf, of_leaf in enumerate(plan.leaves):
        for epoch in epochs:
            rows = shards.index.plan(of_leaf.corpus, plan.layout(0, leaf), length, epoch % 2).rows
            columns.append(np.stack([np.full(rows, leaf), np.full(rows, epoch), np.full(rows, epoch % 2), np.arange(rows)]))
    leaf, epoch, variant, row = np.concatenate(columns, axis=1)
    return BatchRows(0, 0, length, plan.recipe.phases[0].mask_rate, np.arange(leaf.size), leaf, epoch, variant, row)


def build(plan, shards, pieces, rows, sizes=None, **options):
    return RowBuilder(plan, shards, pieces, plan.recipe.seed).build(rows, [len(rows)] if sizes is None else sizes, **options)


def sequences_of(batch):
    """Take a batch apart into plain values, with what was there before masking."""
    ids, shown = batch.input_ids.tolist(), batch.input_ids.tolist()
    targets = dict(zip(batch.predict_positions.tolist(), batch.labels.tolist(), strict=True))
    objective_of = dict(zip(batch.predict_positions.tolist(), batch.prediction_objective.tolist(), strict=True))
    uniforms = dict(zip(batch.predict_positions.tolist(), batch.uniforms.tolist(), strict=True))
    bounds = batch.cu_seqlens.tolist()
    for number, (first, last) in enumerate(pairwise(bounds)):
        objective = OBJECTIVES[int(batch.sequence_objective[number])]
        predicted = {place - first: targets[place] for place in range(first, last) if place in targets}
        assert all(OBJECTIVES[objective_of[first + place]] == objective for place in predicted)
        if objective != "clm":
            for place, target in predicted.items():
                ids[first + place] = target
        yield {
            "objective": objective,
            "ids": ids[first:last],
            "shown": shown[first:last],
            "predicted": predicted,
            "uniforms": {place: uniforms[first + place] for place in predicted},
            "positions": batch.position_ids[first:last].tolist(),
            "types": batch.token_type_ids[first:last].tolist(),
            "languages": batch.language_ids[first:last].tolist(),
            "label": int(batch.sequence_label[number]),
            "key": int(batch.pair_key[number]),
            "index": int(batch.pair_index[number]),
            "row": int(batch.row_id[number]),
            "source": batch.provenance[number] if batch.provenance else None,
        }


@pytest.mark.parametrize(("form", "text_rows"), CASES)
def test_every_row_of_every_objective_is_what_the_definitions_say(every_objective, shards, pieces, form, text_rows):
    plan = every_objective(form, text_rows)
    rows = all_rows(plan, shards, epochs=(0, 3))
    (batch,) = build(plan, shards, pieces, rows, with_provenance=True)
    found = {}
    for sequence in sequences_of(batch):
        found.setdefault(sequence["row"], []).append(sequence)
    assert sorted(found) == list(range(len(rows)))
    for number in range(len(rows)):
        leaf, epoch, variant, row = (int(column[number]) for column in (rows.leaf, rows.epoch, rows.variant, rows.row))
        expected = reference_row(plan, shards, leaf, variant, epoch, row)
        of_leaf = plan.leaves[leaf]
        assert sum(len(one.ids) for one in expected) <= rows.sequence_length
        for place, (one, sequence) in enumerate(zip(expected, found[number], strict=True)):
            assert sequence["objective"] == of_leaf.objective
            assert sequence["ids"] == one.ids
            assert sequence["positions"] == one.positions
            assert sequence["types"] == one.types
            assert sequence["languages"] == one.languages
            assert sequence["label"] == one.label
            pairs = of_leaf.objective == "contrastive"
            assert sequence["key"] == (pair_key_id(one.key) if pairs else -1)
            assert sequence["index"] == (number * PAIRS_PER_ROW + place // 2 if pairs else -1)
            assert [(source.item, source.start, source.end) for source in sequence["source"]] == one.sources
            assert all(source.name == item_of(shards, of_leaf.corpus, source.item)[0] for source in sequence["source"])
            assert {source.corpus for source in sequence["source"]} == {of_leaf.corpus}


def test_every_objective_predicts_what_it_should(every_objective, shards, pieces):
    plan = every_objective()
    (batch,) = build(plan, shards, pieces, all_rows(plan, shards))
    of_row = {}
    for sequence in sequences_of(batch):
        objective, predicted, ids = sequence["objective"], sequence["predicted"], sequence["ids"]
        assert all(ids[place] == piece for place, piece in enumerate(sequence["shown"]) if place not in predicted)
        if objective == "contrastive":
            assert not predicted
        elif objective == "clm":
            assert predicted == {place: ids[place + 1] for place in range(len(ids) - 1)}
            assert sequence["shown"] == ids
        else:
            assert all(label > 4 for label in predicted.values())
            if objective == "rtd":
                assert all(sequence["shown"][place] in (4, label) for place, label in predicted.items())
            maskable, masked = of_row.get(sequence["row"], (0, 0))
            of_row[sequence["row"]] = maskable + sum(piece > 4 for piece in ids), masked + len(predicted)
    drawn = [uniform for one in sequences_of(batch) if one["objective"] == "rtd" for uniform in one["uniforms"].values()]
    assert stats.kstest(drawn, "uniform").pvalue > 1e-6
    assert len(set(drawn)) == len(drawn) > 100
    assert all(not any(one["uniforms"].values()) for one in sequences_of(batch) if one["objective"] != "rtd")
    assert all(masked == (min(maskable, max(1, int(0.25 * maskable + 0.5)))) for maskable, masked in of_row.values())
    labels = {name: [one["label"] for one in sequences_of(batch) if one["objective"] == name] for name in ("nsp", "sop")}
    # Halves exactly (NSP, by the plan, but for units that could not be exchanged) and by coins (SOP; five standard deviations).
    assert abs(np.mean(labels["nsp"]) - 0.5) < 0.1
    assert abs(np.mean(labels["sop"]) - 0.5) < 2.5 / np.sqrt(len(labels["sop"]))


@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=EVERYTHING)
def test_a_row_is_the_same_in_any_company(every_objective, shards, pieces, data):
    plan = every_objective("xlm", data.draw(st.sampled_from(["documents", "full_sentences"])))
    rows = all_rows(plan, shards, epochs=(0, 2))
    chosen = rows.take(np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=40, unique=True))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(chosen)), max_size=5)))
    sizes = np.diff([0, *cuts, len(chosen)]).tolist()
    builder = RowBuilder(plan, shards, pieces, plan.recipe.seed)
    batches = builder.build(chosen, sizes)
    assert len(batches) == len(sizes)
    first = 0
    for batch, size in zip(batches, sizes, strict=True):
        numbers = chosen.number[first : first + size]
        first += size
        assert sorted(set(batch.row_id.tolist())) == sorted(numbers.tolist())
        together = {}
        for sequence in sequences_of(batch):
            together.setdefault(sequence["row"], []).append(sequence)
        for number in numbers.tolist():
            (alone,) = builder.build(rows.take(np.array([number])), [1])
            assert list(sequences_of(alone)) == together[number]


def test_small_and_large_builds_agree(every_objective, shards, pieces, monkeypatch):
    plan = every_objective()
    rows = all_rows(plan, shards)
    sizes = [7] * (len(rows) // 7) + [len(rows) % 7, 0]
    before = [list(sequences_of(batch)) for batch in build(plan, shards, pieces, rows, sizes)]
    monkeypatch.setattr("xlm.batching.row_builder.POSITIONS_AT_ONCE", 100)
    assert [list(sequences_of(batch)) for batch in build(plan, shards, pieces, rows, sizes)] == before


def test_no_token_of_the_text_is_lost(every_objective, shards, pieces):
    plan = every_objective()
    (batch,) = build(plan, shards, pieces, all_rows(plan, shards), with_provenance=True)
    seen = {}
    for sequence in sequences_of(batch):
        if sequence["objective"] == "mlm":
            (source,) = sequence["source"]
            for place, piece in enumerate(sequence["ids"][1:-1]):
                assert (source.corpus, source.item, source.start + place) not in seen
                seen[source.corpus, source.item, source.start + place] = piece
    for corpus in ("de", "en", "sw"):
        tokens = [piece for item in range(150) for piece in item_of(shards, corpus, item)[1][0].tolist()]
        found = sorted((key[1:], piece) for key, piece in seen.items() if key[0] == corpus)
        assert [piece for _, piece in found] == tokens


def test_another_epoch_masks_the_same_row_anew(every_objective, shards, pieces):
    plan = every_objective()
    first, again = (next(iter(build(plan, shards, pieces, all_rows(plan, shards, epochs=(epoch,))))) for epoch in (0, 2))
    assert first.tokens == again.tokens
    assert not first.input_ids.equal(again.input_ids)


def test_no_rows_give_empty_batches_of_the_same_types(every_objective, shards, pieces):
    plan = every_objective()
    rows = all_rows(plan, shards)
    full, empty = build(plan, shards, pieces, rows, [len(rows), 0])
    assert empty.tokens == empty.sequences == 0
    assert empty.cu_seqlens.tolist() == [0]
    (alone,) = build(plan, shards, pieces, rows.take(np.empty(0, dtype=np.int64)), [0])
    for name, tensor in vars(empty).items():
        if name != "provenance":
            assert tensor.dtype == getattr(full, name).dtype == getattr(alone, name).dtype, name
            assert tensor.numel() == alone.__dict__[name].numel() == (1 if name == "cu_seqlens" else 0)


@pytest.mark.parametrize("selection", ["whole_word", "span"])
def test_languages_without_spaces_are_told_to_the_masker(every_objective, shards, pieces, selection, monkeypatch):
    plan = every_objective(masking={"selection": selection})
    monkeypatch.setattr("xlm.batching.row_builder.has_spaces", lambda language: language != "sw")
    asked = []

    class Asked:
        def __init__(self, *_):
            pass

        def mask(self, ids, row_lengths, rate, seeds, *, spaced, rtd):
            asked.append(spaced)
            return Masked(ids, NO_IDS, NO_IDS)

    monkeypatch.setattr("xlm.batching.objective_rows.Masker", Asked)
    (batch,) = build(plan, shards, pieces, all_rows(plan, shards))
    unmasked = [OBJECTIVES.index("contrastive"), OBJECTIVES.index("clm")]
    lengths = np.diff(batch.cu_seqlens.numpy())
    masked = ~np.isin(np.repeat(batch.sequence_objective.numpy(), lengths), unmasked)
    assert np.array_equal(np.concatenate(asked), batch.language_ids.numpy()[masked] != plan.languages.index("sw"))


def test_numbers_that_seeds_are_drawn_from_are_kept_for_a_while_only(every_objective, shards, pieces, monkeypatch):
    monkeypatch.setattr("xlm.batching.row_builder.BASES_KEPT", 3)
    plan = every_objective()
    builder = RowBuilder(plan, shards, pieces, plan.recipe.seed)
    drawn = [builder._base(0, leaf, epoch) for epoch in range(4) for leaf in range(len(plan.leaves))]
    assert len(set(drawn)) == len(drawn)
    assert builder._base.cache_info().currsize == 3
    assert builder._base(0, 0, 0) == drawn[0]
