"""Turn a Hugging Face folder into weights and a vocabulary that pretraining goes on from: FOLDER → OUT.

A recipe then names OUT twice, as ``start_from`` and as ``vocabulary``, and takes its ``model`` section from OUT/model.yaml.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from xlm.errors import UserError, exits_cleanly
from xlm.interop.imported import MODEL_SECTION, import_folder, write_imported
from xlm.interop.output_folder import new_folder


@exits_cleanly
def main() -> None:
    """Read, check, write, and say what came in."""
    arguments = parser().parse_args()
    for folder in (arguments.folder, arguments.generator):
        if folder is not None and not folder.is_dir():
            raise UserError("there is no such folder; pass one that transformers' save_pretrained wrote.", file=folder)
    with new_folder(arguments.output) as partial:
        imported = import_folder(
            arguments.folder,
            generator=arguments.generator,
            allow_extra_rows=arguments.allow_extra_rows,
            round_scores=arguments.round_scores,
        )
        write_imported(imported, partial)
    print(f"import: family {imported.family}, {imported.elements:,} parameters, {imported.vocabulary.size:,} pieces")
    if imported.languages:
        print(f"import: language embeddings for {', '.join(imported.languages)}")
    if imported.left_out_rows:
        print(f"import: {imported.left_out_rows:,} rows of the embedding table belong to no piece and are left out")
    for remark in imported.remarks:
        print(f"import: {remark}")
    if imported.extras:
        print(f"import: kept apart, since nothing of ours needs them: {', '.join(sorted(imported.extras))}")
    print(f"import: vocabulary {imported.vocabulary.fingerprint}; in {arguments.output}")
    print(
        f"To go on from here, set start_from: {arguments.output} and vocabulary: {arguments.output} in a recipe, with the model section "
        f"of {arguments.output / MODEL_SECTION}."
    )


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    result = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    result.add_argument("folder", type=Path, metavar="FOLDER", help="config.json, weights and tokenizer of a transformers model")
    result.add_argument("output", type=Path, metavar="OUT", help="folder to write; must not exist")
    result.add_argument("--generator", type=Path, default=None, metavar="FOLDER", help="the generator of an ELECTRA discriminator")
    result.add_argument("--allow-extra-rows", action="store_true", help="leave out rows of the embedding table that no piece names")
    result.add_argument("--round-scores", action="store_true", help="round the vocabulary's scores to 1/64, for exports with the same ids")
    return result


if __name__ == "__main__":
    main()
