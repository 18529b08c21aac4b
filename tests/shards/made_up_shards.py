"""Token shards of made-up ids, in memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from xlm.shards.format import NAME_COLUMN, STARTS_COLUMN, TOKEN_COLUMNS, shard_schema
from xlm.shards.reader import TokenShard

# Of ids 5 to 24, every second one begins a word.
WORD_FLAGS = np.array([False] * 5 + [True, False] * 10)


def made_up_shard(kind, *columns, sentence_starts=None):
    """Return a shard of items given by column: ids of documents, or of source and of target sides."""
    items = len(columns[0])
    schema = shard_schema(kind, np.dtype(np.uint16))
    arrays = {NAME_COLUMN[kind]: pa.array([str(item) for item in range(items)], pa.string())}
    for name, column in zip(TOKEN_COLUMNS[kind], columns, strict=True):
        arrays[name] = pa.array([np.asarray(ids, dtype=np.uint16) for ids in column], schema.field(name).type)
    if kind == "monolingual":
        arrays[STARTS_COLUMN] = pa.array(sentence_starts or [None] * items, pa.large_list(pa.uint32()))
    batch = pa.record_batch([arrays[name] for name in schema.names], schema=schema)
    sides = [batch.column(name) for name in TOKEN_COLUMNS[kind]]
    return TokenShard(
        Path("made-up"), batch, tuple(side.values.to_numpy() for side in sides), tuple(side.offsets.to_numpy() for side in sides)
    )


def rows_of(plan):
    """Return the segments (item, start, end) of every row."""
    segments = plan.segments
    columns = list(zip(segments.item.tolist(), segments.start.tolist(), segments.end.tolist(), strict=True))
    return [columns[first:last] for first, last in zip(plan.offsets[:-1].tolist(), plan.offsets[1:].tolist(), strict=True)]
