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


def text_of(tokens):
    ids = tokens.input_ids.copy()
    ids[tokens.predict_positions] = tokens.labels
    return np.split(ids, np.cumsum(tokens.sequence_lengths)[:-1])


def test_an_mlm_row_holds_its_segments(setting, builder):
    for ref in rows_of(setting, "mlm"):
        tokens = builder.build(ref)
        segments = setting.shards.row(ref.corpus, "mlm", ref.sequence_length, ref.variant, ref.row)
        assert tokens.input_ids.size <= ref.sequence_length
        for sequence, (item, start, end) in zip(text_of(tokens), segments, strict=True):
            assert sequence.tolist() == [2, *setting.shards.document_tokens(ref.corpus, item)[start:end].tolist(), 3]
        assert set(tokens.language_ids) == {setting.plan.languages.index(ref.corpus)}


@pytest.mark.parametrize("objective", ["tlm", "contrastive"])
def test_pair_rows_hold_whole_pairs(setting, builder, objective):
    for ref in rows_of(setting, objective):
        tokens = builder.build(ref)
        assert tokens.input_ids.size <= ref.sequence_length
        segments = setting.shards.row(ref.corpus, objective, ref.sequence_length, ref.variant, ref.row)
        sequences = text_of(tokens)
        for number, segment in enumerate(segments):
            source, target = (side.tolist() for side in setting.shards.pair_tokens(ref.corpus, segment.item))
            if objective == "tlm":
                assert sequences[number].tolist() in ([2, *source, 3, *target, 3], [2, *target, 3, *source, 3])
            else:
                assert sequences[2 * number].tolist() == [2, *source, 3]
                assert sequences[2 * number + 1].tolist() == [2, *target, 3]
                key = pair_key_id(setting.shards.pair_key(ref.corpus, segment.item))
                assert tokens.pair_keys[2 * number] == tokens.pair_keys[2 * number + 1] == key
        assert builder.pairs_in(ref) == (len(segments) if objective == "contrastive" else 0)


def test_another_epoch_masks_the_same_row_anew(setting, builder):
    ref = next(ref for ref in rows_of(setting, "mlm") if builder.build(ref).input_ids.size > 25)
    first = builder.build(ref)
    assert np.array_equal(first.predict_positions, builder.build(ref).predict_positions)
    again = [builder.build(replace(ref, epoch=ref.epoch + 2 * more)) for more in range(1, 5)]
    assert any(not np.array_equal(first.predict_positions, other.predict_positions) for other in again)


def test_provenance_says_where_every_sequence_came_from(setting, builder):
    for objective in ("mlm", "tlm", "contrastive"):
        for ref in rows_of(setting, objective)[:4]:
            tokens = builder.build(ref)
            sources = builder.provenance(ref)
            assert len(sources) == tokens.sequence_lengths.size
            for source, length in zip(sources, tokens.sequence_lengths, strict=True):
                corpus, _, start, end = re.fullmatch(r"(.+)#(\d+)\[(\d+):(\d+)\]", source).groups()
                assert corpus == ref.corpus
                assert int(end) - int(start) == length - (3 if objective == "tlm" else 2)


def test_keys_of_pairs_are_numbers_that_tell_them_apart():
    keys = {pair_key_id(f"key{number}") for number in range(10_000)}
    assert len(keys) == 10_000
    assert min(keys) >= 0
    assert max(keys) < 2**63
