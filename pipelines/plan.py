"""Show what a recipe will draw before it is trained: shards/ → tables, a figure, and files with every number.

With --memory: how much memory each rank will need, for a recipe or a preset; needs no shards.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from xlm.errors import UserError, exits_cleanly
from xlm.mixing.data_plan import DataPlan
from xlm.mixing.ledger import Ledger, plan_ledger
from xlm.report.figure_style import figure_style, standalone_svg
from xlm.report.figures import rendered
from xlm.report.ledger_figure import draw_ledger, draw_timeline
from xlm.report.ledger_table import ledger_files, ledger_json, ledger_lines
from xlm.runs.cli import parse_invocation, recipe_parser
from xlm.shards.index import ShardIndex
from xlm.storage.store import open_store
from xlm.training.trainable import check_trainable


@exits_cleanly
def main() -> None:
    """Print the ledger of a recipe, and write its figure and tables."""
    if "--memory" in sys.argv:
        from xlm.training.memory_command import memory_parser, print_memory  # brings torch along

        print_memory(memory_parser().parse_args(), Path(__file__).resolve().parents[1] / "deepspeed_configs")
        return
    parser = recipe_parser(__doc__ or "")
    parser.add_argument("--json", action="store_true", help="print the ledger as JSON instead of tables")
    parser.add_argument(
        "--out", type=Path, default=None, metavar="DIR", help="where figure and tables go (default: plan/ in the run folder)"
    )
    invocation = parse_invocation(parser)
    check_trainable(invocation.recipe)
    store = open_store(invocation.recipe.shards.storage, invocation.folder.shards)
    store.record()
    index = ShardIndex.read(store)
    index.check_variants(invocation.recipe.shards.variants)
    ledger = plan_ledger(DataPlan(invocation.recipe, index), index)
    out: Path = invocation.arguments.out or invocation.folder.root / "plan"
    write_ledger(ledger, out)
    if invocation.arguments.json:
        print(json.dumps(ledger_json(ledger), ensure_ascii=False, indent=1))
        return
    print("\n".join(ledger_lines(ledger)))
    print(f"plan: {ledger.steps:,} steps; figure and all lines in {out}")


def write_ledger(ledger: Ledger, folder: Path) -> None:
    """Write the figures as PNG and SVG (``timeline`` only where something changes over time), and the tables as CSV."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError, FileNotFoundError):
        raise UserError("no folder can be made here; give another --out.", file=folder) from None
    for name, draw in (("plan", draw_ledger), ("timeline", draw_timeline)):
        with figure_style():
            drawn = draw(ledger)
            if drawn is not None:
                figure = rendered(name, drawn)
                (folder / f"{name}.png").write_bytes(figure.png)
                (folder / f"{name}.svg").write_text(standalone_svg(figure.svg), encoding="utf-8")
    for name, text in ledger_files(ledger).items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
