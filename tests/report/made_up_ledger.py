"""A ledger of as many languages as asked for: documents and pairs with the first, two phases, a cap of four epochs."""

from __future__ import annotations

from collections.abc import Sequence

from xlm.mixing.ledger import CorpusTotal, Ledger, LedgerEntry, Stretch, language_totals

CAP = 4.0


def made_up_ledger(languages: Sequence[str], cap: float | None = CAP) -> Ledger:
    """Return a ledger in which sizes fall with the rank of a language, and the small are capped."""
    corpora: list[CorpusTotal] = []
    for objective, weight in (("mlm", 3), ("tlm", 2)):
        for rank, language in enumerate(languages, 1):
            if objective == "tlm" and rank == 1:
                continue
            of = (language,) if objective == "mlm" else (languages[0], language)
            epochs = min(0.8 * rank**0.5 * weight, cap or 1e9)
            rows = int(1e7 * epochs * rank**-1.5) + 4
            capped = 300 if epochs == cap else None
            repeats = int(560 / epochs) if epochs > 1 else None
            corpora.append(CorpusTotal(objective, "_".join(of), of, rows, rows * 120, rows * 126, epochs, cap, repeats, capped))
    all_rows = sum(total.rows for total in corpora)
    entries = []
    for phase, part in (("short", 4), ("long", 1)):
        for total in corpora:
            rows = total.rows // 4 if part == 4 else total.rows - total.rows // 4
            share = rows / all_rows * (4 if part == 4 else 4 / 3)
            entries.append(
                LedgerEntry(phase, total.objective, total.corpus, total.languages, rows, rows * 120, rows * 126, share, total.epochs / 2)
            )
    totals = language_totals(corpora)
    named = {total.language: total.tokens for total in totals[:3]}
    timeline = (Stretch(0, 140, {"mlm": 30, "tlm": 10}, named, 7), Stretch(140, 560, {"mlm": 10, "tlm": 30}, named, 7))
    return Ledger(560, tuple(entries), tuple(corpora), totals, timeline)
