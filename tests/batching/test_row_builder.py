import re
from dataclasses import replace

import numpy as np
import pytest

from xlm.batching.row_builder import RowBuilder, pair_key_id


@pytest.fixture
def builder(setting):
    return RowBuilder(setting.shards, setting.pieces, setting.plan.languages, setting.seed)


def rows_of(setting, objective):
    return [ref for step in range(6) for ref in setting.plan.rows(step) if ref.objective == objective]


def build_one(builder, ref):
    (built,) = builder.build([ref])
    return built.rows


def texts_of(rows):
    ids = rows.input_ids.copy()
    ids[rows.predict_positions] = rows.labels
    return np.split(ids, np.cumsum(rows.sequence_lengths)[:-1])


def test_an_mlm_row_holds_its_segments(setting, builder):
    for ref in rows_of(setting, "mlm"):
        rows = build_one(builder, ref)
        segments = setting.shards.row(ref.corpus, "mlm", ref.sequence_length, ref.variant, ref.row)
        assert rows.input_ids.size <= ref.sequence_length
        for sequence, (item, start, end) in zip(texts_of(rows), segments, strict=True):
            assert sequence.tolist() == [2, *setting.shards.document_tokens(ref.corpus, item)[start:end].tolist(), 3]
        assert set(rows.language_ids) == {setting.plan.languages.index(ref.corpus)}


@pytest.mark.parametrize("objective", ["tlm", "contrastive"])
def test_pair_rows_hold_whole_pairs(setting, builder, objective):
    for ref in rows_of(setting, objective):
        rows = build_one(builder, ref)
        assert rows.input_ids.size <= ref.sequence_length
        segments = setting.shards.row(ref.corpus, objective, ref.sequence_length, ref.variant, ref.row)
        sequences = texts_of(rows)
        for number, segment in enumerate(segments):
            source, target = (side.tolist() for side in setting.shards.pair_tokens(ref.corpus, segment.item))
            if objective == "tlm":
                assert sequences[number].tolist() in ([2, *source, 3, *target, 3], [2, *target, 3, *source, 3])
            else:
                assert sequences[2 * number].tolist() == [2, *source, 3]
                assert sequences[2 * number + 1].tolist() == [2, *target, 3]
                key = pair_key_id(setting.shards.pair_key(ref.corpus, segment.item))
                assert rows.pair_keys[2 * number] == rows.pair_keys[2 * number + 1] == key
        assert builder.pairs_in(ref) == (len(segments) if objective == "contrastive" else 0)


def test_rows_built_together_are_as_built_alone(setting, builder):
    refs = list(setting.plan.rows(3))
    together = builder.build(refs)
    assert [built.rows.objective for built in together] == ["mlm", "tlm", "contrastive"]
    assert sorted((ref for built in together for ref in built.refs), key=str) == sorted(refs, key=str)
    for built in together:
        alone = [build_one(builder, ref) for ref in built.refs]
        for name in ("input_ids", "position_ids", "token_type_ids", "language_ids", "labels", "sequence_lengths", "pair_keys"):
            assert np.array_equal(getattr(built.rows, name), np.concatenate([getattr(one, name) for one in alone])), name


def test_another_epoch_masks_the_same_row_anew(setting, builder):
    ref = next(ref for ref in rows_of(setting, "mlm") if build_one(builder, ref).input_ids.size > 25)
    first = build_one(builder, ref)
    assert np.array_equal(first.predict_positions, build_one(builder, ref).predict_positions)
    again = [build_one(builder, replace(ref, epoch=ref.epoch + 2 * more)) for more in range(1, 5)]
    assert any(not np.array_equal(first.predict_positions, other.predict_positions) for other in again)


def test_provenance_says_where_every_sequence_came_from(setting, builder):
    for objective in ("mlm", "tlm", "contrastive"):
        (built,) = builder.build(rows_of(setting, objective), with_provenance=True)
        refs = np.repeat(np.array(built.refs, dtype=object), built.rows.sequences_per_row)
        special = 3 if objective == "tlm" else 2
        for source, ref, sequence in zip(built.provenance, refs, texts_of(built.rows), strict=True):
            corpus, item, start, end = re.fullmatch(r"(.+)#(\d+)\[(\d+):(\d+)\]", source).groups()
            assert corpus == ref.corpus
            assert int(end) - int(start) == sequence.size - special
            if objective == "mlm":
                tokens = setting.shards.document_tokens(corpus, int(item))
            else:
                tokens = np.concatenate(setting.shards.pair_tokens(corpus, int(item)))
            if objective != "tlm":
                assert sequence[1:-1].tolist() == tokens[int(start) : int(end)].tolist()


def test_keys_of_pairs_are_numbers_that_tell_them_apart():
    keys = {pair_key_id(f"key{number}") for number in range(10_000)}
    assert len(keys) == 10_000
    assert min(keys) >= 0
    assert max(keys) < 2**63
