"""SentencePiece's compiled normaliser, read back as the rules it was made from.

The map is a double-array trie (darts-clone) over UTF-8 keys followed by the replacements, each ended by a zero
byte; a leaf holds where its replacement begins (SOURCE: sentencepiece/src/normalizer.cc, `EncodePrecompiledCharsMap`,
and third_party/darts_clone/darts.h, `DoubleArrayUnit`). SentencePiece replaces the longest key at each position.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from xlm.errors import UserError


def read_rules(character_map: bytes) -> dict[str, str]:
    """Return what each string of a character map is replaced by; an empty map has no rules.

    Raises UserError for a map that is damaged.
    """
    if not character_map:
        return {}
    try:
        (trie_bytes,) = struct.unpack_from("<I", character_map)
        units = np.frombuffer(character_map, dtype="<u4", count=trie_bytes // 4, offset=4).astype(np.int64)
        replacements = character_map[4 + trie_bytes :]
        return {
            key.decode(): replacements[begin : replacements.index(b"\0", begin)].decode()
            for key, begin in _walk(units, longest=len(character_map))
        }
    except (struct.error, IndexError, ValueError):
        raise UserError("the normaliser of this SentencePiece model is damaged; build or copy the model again.") from None


def _walk(units: npt.NDArray[np.int64], *, longest: int) -> list[tuple[bytes, int]]:
    """Return every key with the place of its replacement, one level of the trie (a byte of the keys) at a time."""
    # A child lies at its parent's offset xor its label, so units are sorted by where their parent's children begin.
    labels = units & 0x800000FF  # the top bit and the lowest byte; a leaf has the top bit and is nobody's child
    children = np.flatnonzero((labels > 0) & (labels < 256))
    parents = children ^ labels[children]
    children, parents = children[np.argsort(parents, kind="stable")], np.sort(parents)
    found: list[tuple[bytes, int]] = []
    positions = np.zeros(1, dtype=np.int64)
    keys = [b""]
    for _ in range(longest):
        if not len(positions):
            break
        here = units[positions]
        # Bits 10 and up are the offset to the children, times 256 where bit 9 is set.
        offsets = positions ^ ((here >> 10) << ((here & (1 << 9)) >> 6))
        ends = np.flatnonzero(here >> 8 & 1)
        found += [(keys[node], int(units[offsets[node]] & 0x7FFFFFFF)) for node in ends.tolist()]
        first = np.searchsorted(parents, offsets, side="left")
        counts = np.searchsorted(parents, offsets, side="right") - first
        nodes = np.repeat(np.arange(len(positions)), counts)
        positions = children[np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())]
        keys = [keys[node] + bytes([byte]) for node, byte in zip(nodes.tolist(), labels[positions].tolist(), strict=True)]
    return found
