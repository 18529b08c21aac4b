"""Stage 6: English test sentences with words switched into other languages, scored by realised code-mixing."""

from __future__ import annotations

from xlm.errors import exits_cleanly
from xlm.evaluation.code_switching import run_code_switching, switching_table
from xlm.runs.cli import parse_invocation, recipe_parser
from xlm.runs.fingerprint import code_fingerprint, fingerprint
from xlm.runs.lineage import check_before_scoring
from xlm.runs.stage import Stage, read_record, write_json


@exits_cleanly
def main() -> None:
    """Score switched sentences with the run's last checkpoint, once for the same inputs."""
    invocation = parse_invocation(recipe_parser("Accuracy on code-switched sentences, the character floor beside it."))
    recipe, run = invocation.recipe, invocation.folder
    check_before_scoring(run)
    inputs = {
        "train": read_record(run.train).fingerprint,
        "tasks": read_record(run.tasks).fingerprint,
        "corpus": read_record(run.corpus).fingerprint,
        "vocabulary": read_record(run.vocabulary).fingerprint,
        "recipe": fingerprint(recipe.model_dump(mode="json", include={"tasks", "evaluation", "model", "seed"})),
        "code": code_fingerprint("evaluation", "tasks", "codeswitch", "model", "vocab"),
    }
    stage = Stage(run.code_switching, "code_switching", inputs)
    if stage.is_done():
        print(f"code-switching scores: already done ({run.code_switching / 'scores.json'})")
        return
    with stage.write() as output:
        scores = run_code_switching(recipe, run, output.folder)
        write_json(output.folder / "scores.json", scores)
        output.summary.update(
            {language: {rate: cell["systems"] for rate, cell in rates.items()} for language, rates in scores["languages"].items()}
        )
    print(switching_table(scores))
    print(f"scores: {run.code_switching / 'scores.json'}")


if __name__ == "__main__":
    main()
