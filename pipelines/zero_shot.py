"""Stage 5: how well English labels transfer: probe, fine-tuning and retrieval, beside their floors."""

from __future__ import annotations

from xlm.config.recipe import EvaluationSection
from xlm.errors import exits_cleanly
from xlm.evaluation.intent_systems import FINETUNED, PROBE, SWITCHED_FINETUNED, SWITCHED_PROBE
from xlm.evaluation.zero_shot import run_zero_shot, summary_table
from xlm.runs.cli import parse_invocation, recipe_parser
from xlm.runs.fingerprint import code_fingerprint, fingerprint
from xlm.runs.lineage import check_before_scoring
from xlm.runs.stage import Stage, read_record, write_json


@exits_cleanly
def main() -> None:
    """Score the run's last checkpoint, once for the same inputs."""
    invocation = parse_invocation(recipe_parser("Zero-shot scores of the pretrained encoder, every floor beside them."))
    recipe, run = invocation.recipe, invocation.folder
    check_before_scoring(run)
    inputs = {
        "train": read_record(run.train).fingerprint,
        "tasks": read_record(run.tasks).fingerprint,
        "vocabulary": read_record(run.vocabulary).fingerprint,
        "corpus": read_record(run.corpus).fingerprint if reads_corpus(recipe.evaluation) else "",
        "embeddings": read_record(run.embeddings).fingerprint if recipe.embeddings.kind == "aligned" else "",
        "recipe": fingerprint(recipe.model_dump(mode="json", include={"tasks", "evaluation", "model", "embeddings", "seed"})),
        "code": code_fingerprint("evaluation", "tasks", "codeswitch", "model", "vocab"),
    }
    stage = Stage(run.zero_shot, "zero_shot", inputs)
    if stage.is_done():
        print(f"zero-shot scores: already done ({run.zero_shot / 'scores.json'})")
        return
    with stage.write() as output:
        scores = run_zero_shot(recipe, run, output.folder)
        write_json(output.folder / "scores.json", scores)
        output.summary.update(scores["summary"])
    print(summary_table(scores))
    for system, languages in scores["intents"]["collapsed"].items():
        # A floor that knows no letter of a language can only give one label; a trained classifier should not.
        if system in (PROBE, FINETUNED, SWITCHED_PROBE, SWITCHED_FINETUNED):
            print(f"warning: {system} gives nearly every sentence one label in {', '.join(languages)}")
    print(f"scores: {run.zero_shot / 'scores.json'}")


def reads_corpus(evaluation: EvaluationSection) -> bool:
    """Return whether classifiers learn from pairs of the corpus, through the lexicons or the whitening."""
    return evaluation.code_switched_training is not None or evaluation.whitening is not None


if __name__ == "__main__":
    main()
