"""Stage 1: from a manifest to cleaned, deduplicated documents and pairs, without any evaluation text."""

from __future__ import annotations

from pathlib import Path

from xlm.config.recipe import Recipe
from xlm.corpora.clean import clean_corpus, summary_table
from xlm.corpora.drops import DropCounts
from xlm.corpora.held_out import HeldOutText
from xlm.corpora.manifest import Manifest, load_manifest
from xlm.corpora.normalised import normalised_corpus, without_text_lines
from xlm.errors import UserError, exits_cleanly
from xlm.runs.cli import cache_folder, parse_invocation, recipe_parser
from xlm.runs.fingerprint import code_fingerprint
from xlm.runs.folder import RunFolder
from xlm.runs.stage import Stage, read_record, write_json


@exits_cleanly
def main() -> None:
    """Parse the command line, clean the corpus, print what was kept and what was not."""
    invocation = parse_invocation(recipe_parser(__doc__ or ""))
    recipe, folder = invocation.recipe, invocation.folder
    manifest = load_manifest(recipe.corpora.manifest)
    check_languages(recipe, manifest, invocation.recipe_path)
    held_out_file = folder.tasks / "held_out.npz" if recipe.tasks is not None else None
    if held_out_file is not None and not held_out_file.exists():
        raise UserError(
            "this file keeps evaluation text out of the corpus, and it is not there; run pipelines/build_tasks.py with the same "
            "recipe first, or say tasks: null to build a corpus from which nothing is held out.",
            file=held_out_file,
        )
    normalised = normalised_corpus(manifest, folder.normalised, cache_folder())
    stage = corpus_stage(recipe, folder, normalised, held_out_file)
    found = read_record(normalised).summary
    without_text = without_text_lines(found["without_text"])
    if stage.is_done():
        print("\n".join([*without_text, f"{folder.corpus}: already done"]))
        return
    drops = DropCounts()
    drops.merge(found["dropped"])
    held_out = HeldOutText.load(held_out_file) if held_out_file is not None else None
    with stage.write() as output:
        limit = recipe.corpora.max_documents_per_language
        counts = clean_corpus(normalised, output.folder, held_out=held_out, max_documents=limit, seed=recipe.seed, drops=drops)
        output.summary |= counts.summary(drops) | {"without_text": found["without_text"]}
        write_json(output.folder / "summary.json", output.summary)
    print("\n".join([summary_table(output.summary), *without_text, f"corpus: {folder.corpus}"]))


def corpus_stage(recipe: Recipe, folder: RunFolder, normalised: Path, held_out_file: Path | None) -> Stage:
    """Return the stage: it depends on the normalised text, the evaluation sets kept out of it, the limit with its seed, and the code."""
    limit = recipe.corpora.max_documents_per_language
    inputs = {
        "normalised": read_record(normalised).fingerprint,
        "tasks": read_record(held_out_file.parent).fingerprint if held_out_file is not None else "none",
        "limit": f"{limit} of seed {recipe.seed}" if limit is not None else "none",
        "code": code_fingerprint("corpora"),
    }
    return Stage(folder.corpus, "corpus", inputs)


def check_languages(recipe: Recipe, manifest: Manifest, recipe_path: Path) -> None:
    """Raise UserError for a language that a phase asks for and no source of the manifest holds."""
    for phase in recipe.phases:
        missing = [] if phase.languages == "all" else [language for language in phase.languages if language not in manifest.languages]
        if missing:
            raise UserError(
                f"phase '{phase.name}' asks for {', '.join(missing)}, but the manifest {recipe.corpora.manifest} holds "
                f"{', '.join(manifest.languages)}; add a source or take the language out.",
                file=recipe_path,
            )


if __name__ == "__main__":
    main()
