"""Join a run's scores and write its report: every finished stage → report.html, scores.json, figures/."""

from __future__ import annotations

import os
from pathlib import Path

from xlm.corpora.manifest import load_manifest
from xlm.errors import exits_cleanly
from xlm.report.facts import read_facts
from xlm.report.figure_style import standalone_svg
from xlm.report.figures import draw_figures
from xlm.report.page import render_report
from xlm.report.recorded import check_recorded_recipe, command_again
from xlm.report.summary import SCORES, read_json
from xlm.report.text import REPORT
from xlm.runs.cli import Invocation, parse_invocation, recipe_parser
from xlm.runs.fingerprint import code_fingerprint, fingerprint
from xlm.runs.lineage import stage_records
from xlm.runs.stage import Stage, StageOutput, write_json
from xlm.tracking.tracker import Tracker

DEEPSPEED_CONFIGS = Path(__file__).resolve().parents[1] / "deepspeed_configs"


@exits_cleanly
def main() -> None:
    """Write the report of a run, unless it is there already for exactly these stages."""
    invocation = parse_invocation(recipe_parser(__doc__ or ""))
    root = invocation.folder.root
    check_recorded_recipe(invocation.recipe, invocation.folder)
    stage = report_stage(invocation)
    if stage.is_done() and (root / REPORT).exists() and (root / SCORES).exists():
        print(f"report: already done ({root / REPORT}).")
        return
    with stage.write() as output:
        write_report(invocation, output)
    attach_figures(invocation)
    summary = read_json(root / SCORES, required=True)["summary"]
    scores = {name: value for name, value in summary.items() if name.startswith(("intents", "retrieval")) and value is not None}
    print("\n".join(f"{name:<34} {value:6.1f} %" for name, value in sorted(scores.items())))
    print(f"report: {root / REPORT}, {root / SCORES}, pictures in {invocation.folder.figures}")


def report_stage(invocation: Invocation) -> Stage:
    """Return the report as a stage: its folder is figures/, its inputs are all the other stages, and its code, the ledger's too."""
    inputs = {name: record.fingerprint for name, record in stage_records(invocation.folder).items()}
    inputs |= {"recipe": fingerprint(invocation.recipe.model_dump(mode="json")), "code": code_fingerprint("mixing", "report")}
    return Stage(invocation.folder.figures, "report", inputs)


def write_report(invocation: Invocation, output: StageOutput) -> None:
    """Write figures into the stage's folder, and the page and the scores beside it before the stage counts as done."""
    recipe, root = invocation.recipe, invocation.folder.root
    facts = read_facts(recipe, invocation.folder, load_manifest(recipe.corpora.manifest))
    figures = draw_figures(facts)
    for name, figure in figures.items():
        (output.folder / f"{name}.png").write_bytes(figure.png)
        (output.folder / f"{name}.svg").write_text(standalone_svg(figure.svg), encoding="utf-8")
    page = render_report(facts, figures, command_again(invocation, DEEPSPEED_CONFIGS))
    partial = root / f".{REPORT}.{os.getpid()}.partial"
    partial.write_text(page, encoding="utf-8")
    partial.replace(root / REPORT)
    write_json(root / SCORES, facts.scores)
    output.summary.update({"figures": sorted(figures), "summary": facts.scores["summary"]})


def attach_figures(invocation: Invocation) -> None:
    """Attach the figures to the training's MLflow run; a store that does not answer stops nothing."""
    run = read_json(invocation.folder.train / "run.json", required=False)
    if "tracking_key" in run:
        tracker = Tracker(invocation.folder.root, key=run["tracking_key"], name=invocation.recipe.name)
        tracker.start()
        tracker.flush()
        tracker.log_figures(figure_files(invocation.folder.figures))
        tracker.close()


def figure_files(folder: Path) -> list[Path]:
    """Return the pictures in a folder, sorted."""
    return sorted(path for path in folder.iterdir() if path.suffix in (".png", ".svg"))


if __name__ == "__main__":
    main()
