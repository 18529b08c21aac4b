"""The figure of a sweep: the curve of every point, the best one in colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xlm.report.figure_style import colour, figure_style, new_figure, standalone_svg
from xlm.report.figures import rendered
from xlm.report.sweep_table import PointResult, ranking_metric

_HEIGHT_INCHES = 3.2


def draw_sweep(results: Sequence[PointResult], folder: Path) -> Path | None:
    """Write ``sweep.png`` and ``sweep.svg`` and return the former's path; None where no point has a curve."""
    metric = ranking_metric(results)
    curves = {
        result.name: [(int(line["step"]), float(line[metric])) for line in result.lines if line.get(metric) is not None]
        for result in results
    }
    curves = {name: curve for name, curve in curves.items() if curve}
    if not curves:
        return None
    best = min(curves, key=lambda name: curves[name][-1][1])
    what = "validation loss" if metric == "validation/loss" else "training loss"
    with figure_style():
        figure = new_figure(_HEIGHT_INCHES)
        axes = figure.subplots()
        for name, curve in curves.items():
            steps, losses = zip(*curve, strict=True)
            is_best = name == best
            axes.plot(
                steps, losses, color=colour("blue" if is_best else "muted"), linewidth=1.8 if is_best else 0.8, zorder=3 if is_best else 2
            )
        axes.set_xlabel("step")
        axes.set_ylabel(what)
        axes.set_title(f"lowest: {best}", loc="left", fontsize="medium", color=colour("blue"))
        drawn = rendered("sweep", (figure, "The sweep", f"{what} of every point", f"{len(curves)} curves; the lowest ends with {best}"))
    (folder / "sweep.png").write_bytes(drawn.png)
    (folder / "sweep.svg").write_text(standalone_svg(drawn.svg), encoding="utf-8")
    return folder / "sweep.png"
