import pytest

from xlm.batching.row_reader import RowReader


@pytest.mark.parametrize("objective", ["mlm", "tlm", "contrastive"])
def test_texts_are_those_of_the_row_plan(setting, objective):
    refs = [ref for step in range(4) for ref in setting.plan.rows(step) if ref.objective == objective]
    reader = RowReader(setting.shards)
    texts = reader.read(refs)
    assert sorted(texts.refs, key=str) == sorted(refs, key=str)
    segments = [
        (ref.corpus, *segment)
        for ref in texts.refs
        for segment in setting.shards.row(ref.corpus, objective, ref.sequence_length, ref.variant, ref.row)
    ]
    per_row = [len(setting.shards.row(ref.corpus, objective, ref.sequence_length, ref.variant, ref.row)) for ref in texts.refs]
    assert texts.segments_per_row.tolist() == per_row
    assert texts.items.tolist() == [item for _, item, _, _ in segments]
    assert texts.offsets.tolist() == [start for _, _, start, _ in segments]
    lengths = [side.lengths.tolist() for side in texts.sides]
    assert [sum(of_segment) for of_segment in zip(*lengths, strict=True)] == [end - start for _, _, start, end in segments]
    names = reader.names(texts)
    name_of = setting.shards.document_id if objective == "mlm" else setting.shards.pair_key
    assert names == [name_of(corpus, item) for corpus, item, _, _ in segments]
    assert {item // 70 for _, item, _, _ in segments} == {0, 1, 2}  # every shard of a corpus took part
    if objective == "contrastive":
        assert [reader.pairs_in(ref) for ref in texts.refs] == per_row
