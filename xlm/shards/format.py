"""The layout of a token shard: an Arrow IPC *file* with one record batch.

The file format, not the stream: it has a footer, so that readers map it and jump to any batch, and it is
what `pyarrow.ipc.open_file`, `polars.scan_ipc` and `datasets.load_dataset("arrow", data_files=...)` read
as it is (`Dataset.from_file` reads only the stream format). One batch per file, because a column is then
one flat buffer of tokens and one of offsets, and numpy views of both need no copy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from xlm.errors import UserError
from xlm.runs.fingerprint import file_sha256

FORMAT_VERSION = 2
Kind = Literal["monolingual", "pair"]

VERSION_KEY = b"xlm.format_version"
KIND_KEY = b"xlm.kind"
LANGUAGE_KEY = b"xlm.language"
VOCABULARY_KEY = b"xlm.vocabulary"
CHECKSUM_KEY = b"xlm.checksum"
LARGEST_ID_KEY = b"xlm.largest_id"

TOKEN_COLUMNS: Mapping[Kind, tuple[str, ...]] = {"monolingual": ("tokens",), "pair": ("source", "target")}
NAME_COLUMN: Mapping[Kind, str] = {"monolingual": "id", "pair": "key"}
STARTS_COLUMN = "sentence_starts"


def shard_schema(kind: Kind, token_dtype: np.dtype[Any], metadata: Mapping[bytes, bytes] | None = None) -> pa.Schema:
    """Return the Arrow schema of a shard: ``id, tokens, sentence_starts`` or ``key, source, target``."""
    tokens = pa.large_list(pa.from_numpy_dtype(token_dtype))
    fields = [pa.field(NAME_COLUMN[kind], pa.string(), nullable=False)]
    fields += [pa.field(name, tokens, nullable=False) for name in TOKEN_COLUMNS[kind]]
    if kind == "monolingual":
        fields.append(pa.field(STARTS_COLUMN, pa.large_list(pa.uint32()), nullable=True))
    return pa.schema(fields, metadata=dict(metadata or {}))


def shard_metadata(
    kind: Kind, languages: tuple[str, ...], vocabulary_fingerprint: str, checksum: str, largest_id: int
) -> dict[bytes, bytes]:
    """Return the schema metadata of a shard; the languages of a pair are joined by an underscore, no largest id is -1."""
    return {
        VERSION_KEY: str(FORMAT_VERSION).encode(),
        KIND_KEY: kind.encode(),
        LANGUAGE_KEY: "_".join(languages).encode(),
        VOCABULARY_KEY: vocabulary_fingerprint.encode(),
        CHECKSUM_KEY: checksum.encode(),
        LARGEST_ID_KEY: str(largest_id).encode(),
    }


def content_checksum(batch: pa.RecordBatch) -> str:
    """Hash what a batch says, column by column (SHA-256): lengths and values, not padding or flags of the file."""
    digest = hashlib.sha256()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        digest.update(name.encode())
        if pa.types.is_string(column.type):
            column = pa.array(column, pa.large_string())
            offsets = np.frombuffer(column.buffers()[1], dtype=np.int64)[: len(column) + 1]
            digest.update(offsets.tobytes())
            digest.update(memoryview(column.buffers()[2] or b"")[: int(offsets[-1]) if len(column) else 0])
        else:
            validity = column.is_valid().to_numpy(zero_copy_only=False)
            digest.update(validity.tobytes())
            digest.update(np.ascontiguousarray(column.offsets.to_numpy()).tobytes())
            digest.update(np.ascontiguousarray(column.values.to_numpy()).tobytes())
    return digest.hexdigest()


def largest_id(tokens: npt.NDArray[Any]) -> int:
    """Return the largest of some ids, -1 where there is none."""
    return int(tokens.max()) if len(tokens) else -1


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a copy of a file is checked by."""

    size_bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileFacts:
        """Read a file's size and hash its bytes."""
        return cls(path.stat().st_size, file_sha256(path))


def write_arrow(path: Path, batch: pa.RecordBatch) -> FileFacts:
    """Write one uncompressed record batch as an Arrow IPC file (compressed buffers could not be mapped)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return FileFacts.of(path)


def map_arrow(path: Path) -> pa.RecordBatch:
    """Map an Arrow IPC file of one batch into memory, without reading it; raises UserError where that fails."""
    try:
        with pa.memory_map(str(path), "r") as source:
            reader = pa.ipc.open_file(source)
            if reader.num_record_batches != 1:
                raise UserError(
                    f"{reader.num_record_batches} record batches found, 1 expected; delete its shards folder and build it again.", file=path
                )
            return reader.get_batch(0)
    except FileNotFoundError:
        raise UserError(
            "this file is missing; delete its shards folder and build it again with pipelines/build_shards.py.", file=path
        ) from None
    except (pa.ArrowInvalid, OSError):
        raise UserError("this file is damaged or not an Arrow IPC file; delete its shards folder and build it again.", file=path) from None
