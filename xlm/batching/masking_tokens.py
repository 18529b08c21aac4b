"""Positions chosen one by one, whatever word they are part of."""

from __future__ import annotations

from xlm.batching.masking_rows import Chosen, Flags, RowGrid, predictions_in


class TokenSelection:
    """Every maskable position is as likely as any other (BERT, Devlin et al. 2019; RoBERTa)."""

    def choose(self, grid: RowGrid, rate: float, spaced: Flags | None) -> Chosen:
        """Choose exactly `predictions_in` positions of each row, uniformly and without replacement.

        A higher rate chooses what a lower one does, and more.
        """
        return grid.smallest(grid.keys(), predictions_in(grid.maskable, rate))
