"""The layout of a run folder, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunFolder:
    """``runs/<recipe name>/`` and the folder of each stage inside it."""

    root: Path

    @property
    def normalised(self) -> Path:
        """Manifest text read and normalised, before anything is kept out (shared by two stages)."""
        return self.root / "normalised"

    @property
    def tasks(self) -> Path:
        """Evaluation sets and the hash file that keeps their text out of pretraining."""
        return self.root / "tasks"

    @property
    def corpus(self) -> Path:
        """Cleaned documents and pairs."""
        return self.root / "corpus"

    @property
    def vocabulary(self) -> Path:
        """The trained SentencePiece model and its coverage table."""
        return self.root / "vocabulary"

    @property
    def shards(self) -> Path:
        """Token shards and row plans."""
        return self.root / "shards"

    @property
    def embeddings(self) -> Path:
        """Aligned initial token embeddings."""
        return self.root / "embeddings"

    @property
    def train(self) -> Path:
        """Checkpoints, metrics and the resolved run."""
        return self.root / "train"

    @property
    def zero_shot(self) -> Path:
        """Zero-shot scores and per-sentence predictions."""
        return self.root / "zero_shot"

    @property
    def code_switching(self) -> Path:
        """Code-switched test sets and scores."""
        return self.root / "code_switching"

    @property
    def figures(self) -> Path:
        """Figures of the report."""
        return self.root / "figures"
