"""What is in a shards folder: `index.json`, parsed. Planning and reports need nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xlm.errors import UserError, suggest
from xlm.runs.stage import write_json
from xlm.shards.format import FORMAT_VERSION, Kind
from xlm.shards.layouts import Layout
from xlm.storage.store import LocalStore, ShardStore

INDEX_FILE = "index.json"


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One token shard: its path inside the shards folder, what it holds, and the file itself."""

    path: str
    items: int
    tokens: int
    sentences: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class CorpusEntry:
    """A corpus as it lies in shards; ``tokens`` counts both sides of pairs, without special pieces.

    ``sentences`` counts a document without known sentences, and a pair, as one.
    """

    name: str
    kind: Kind
    languages: tuple[str, ...]
    items: int
    tokens: int
    sentences: int
    files: tuple[ShardFile, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)  # items left out while tokenising, by reason


@dataclass(frozen=True, slots=True)
class PlanFile:
    """The rows of one token shard: block n of a row plan is made from shard n of its corpus and from nothing else."""

    path: str
    rows: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class PlanEntry:
    """One row plan; ``fill`` is used positions over rows x length, special pieces included.

    Rows are numbered over all blocks. ``text_tokens`` counts tokens of text, each as often as an epoch shows it.
    """

    corpus: str
    layout: Layout
    length: int
    variant: int
    rows: int
    segments: int
    text_tokens: int
    fill: float
    files: tuple[PlanFile, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)  # items left out of the plan, by reason

    @property
    def block_rows(self) -> tuple[int, ...]:
        """Rows of each block."""
        return tuple(file.rows for file in self.files)


@dataclass(frozen=True)
class PieceCountsFile:
    """Occurrences of every piece over all corpora, a uint64 ``.npy`` of [vocabulary]."""

    path: str
    size_bytes: int
    sha256: str


PlanKey = tuple[str, Layout, int, int]


@dataclass(frozen=True)
class ShardIndex:
    """The corpora and row plans of a shards folder."""

    vocabulary_fingerprint: str
    variants: int
    corpora: Mapping[str, CorpusEntry]
    plans: Mapping[PlanKey, PlanEntry]
    piece_counts: PieceCountsFile | None = None
    # Of the items, set aside for validation: their rows are plans of the variant ``variants``, which training never draws.
    held_out_share: float = 0.0

    @classmethod
    def load(cls, folder: Path) -> ShardIndex:
        """Read ``index.json`` of a folder; raises UserError as `read` does."""
        return cls.read(LocalStore(folder))

    @classmethod
    def read(cls, store: ShardStore) -> ShardIndex:
        """Read ``index.json``; raises UserError where it is missing, damaged or of another format version."""
        path = f"{store.location}/{INDEX_FILE}"
        try:
            data = json.loads(store.fresh(INDEX_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError("there are no shards here; build them with pipelines/build_shards.py.", file=path) from None
        except json.JSONDecodeError as error:
            raise UserError("this index is damaged; delete its folder and build the shards again.", file=path, line=error.lineno) from None
        try:
            version = data["format_version"]
            if version != FORMAT_VERSION:
                raise UserError(f"shards of format {version} found, this version reads {FORMAT_VERSION}; build them again.", file=path)
            plans = [_plan_entry(plan) for plan in data["plans"]]
            piece_counts = data["piece_counts"]
            return cls(
                vocabulary_fingerprint=data["vocabulary"],
                variants=data["variants"],
                corpora={name: _corpus_entry(name, entry) for name, entry in data["corpora"].items()},
                plans={(plan.corpus, plan.layout, plan.length, plan.variant): plan for plan in plans},
                piece_counts=None if piece_counts is None else PieceCountsFile(**piece_counts),
                held_out_share=data.get("held_out_share", 0.0),
            )
        except (KeyError, TypeError, AttributeError):
            raise UserError("this index is damaged; delete its folder and build the shards again.", file=path) from None

    def save(self, folder: Path) -> None:
        """Write ``index.json``."""
        corpora = {name: {key: value for key, value in asdict(entry).items() if key != "name"} for name, entry in self.corpora.items()}
        data = {
            "format_version": FORMAT_VERSION,
            "vocabulary": self.vocabulary_fingerprint,
            "variants": self.variants,
            "piece_counts": None if self.piece_counts is None else asdict(self.piece_counts),
            "held_out_share": self.held_out_share,
            "corpora": corpora,
            "plans": [asdict(self.plans[key]) for key in sorted(self.plans)],
        }
        write_json(folder / INDEX_FILE, data)

    def check_variants(self, asked: int) -> None:
        """Raise UserError where the recipe asks for another number of variants than the rows were planned in."""
        if asked != self.variants:
            raise UserError(
                f"shards.variants is {asked}, but these shards have row plans in {self.variants}; "
                "build them again with this recipe (pipelines/build_shards.py)."
            )

    def check_held_out(self, asked: float) -> None:
        """Raise UserError where the recipe asks for another share of held-out text than was set aside."""
        if asked != self.held_out_share:
            raise UserError(
                f"shards.held_out_share is {asked:g}, but of these shards {self.held_out_share:g} is set aside; "
                "build them again with this recipe (pipelines/build_shards.py)."
            )

    def held_out(self) -> Iterator[PlanEntry]:
        """Yield the row plans of what is set aside for validation, by corpus."""
        for key in sorted(self.plans):
            if key[3] == self.variants:
                yield self.plans[key]

    def corpus(self, name: str) -> CorpusEntry:
        """Return a corpus's entry; raises UserError with the names there are."""
        if name not in self.corpora:
            raise UserError(
                f"the shards hold no corpus '{name}'{suggest(name, self.corpora)}; there are: {', '.join(sorted(self.corpora))}."
            )
        return self.corpora[name]

    def files(self) -> Iterator[ShardFile | PlanFile | PieceCountsFile]:
        """Yield every file that there is beside the index itself: token shards, blocks of row plans, piece counts."""
        for corpus in self.corpora.values():
            yield from corpus.files
        for plan in self.plans.values():
            yield from plan.files
        if self.piece_counts is not None:
            yield self.piece_counts

    def of_kind(self, kind: Kind) -> Iterator[CorpusEntry]:
        """Yield the corpora of a kind, sorted by name."""
        for name in sorted(self.corpora):
            if self.corpora[name].kind == kind:
                yield self.corpora[name]

    def tokens(self, corpus: str) -> int:
        """Return the tokens of a corpus, special pieces not counted."""
        return self.corpus(corpus).tokens

    def plan(self, corpus: str, layout: Layout, length: int, variant: int) -> PlanEntry:
        """Return a row plan's entry; raises UserError where it was not built."""
        key = (corpus, layout, length, variant)
        if key not in self.plans:
            self.corpus(corpus)
            raise UserError(
                f"no rows of '{corpus}' are planned as {layout} at length {length}, variant {variant} "
                f"(planned: {_planned(self.plans, corpus)}); build the shards again with this recipe."
            )
        return self.plans[key]


def _corpus_entry(name: str, data: Mapping[str, Any]) -> CorpusEntry:
    fields = {**data, "languages": tuple(data["languages"]), "files": tuple(ShardFile(**file) for file in data["files"])}
    return CorpusEntry(name=name, **fields)


def _plan_entry(data: Mapping[str, Any]) -> PlanEntry:
    return PlanEntry(**{**data, "files": tuple(PlanFile(**file) for file in data["files"])})


def _planned(plans: Mapping[PlanKey, PlanEntry], corpus: str) -> str:
    found: Sequence[str] = [f"{layout} {length} v{variant}" for name, layout, length, variant in sorted(plans) if name == corpus]
    return ", ".join(found) or "nothing"
