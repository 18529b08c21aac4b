"""Write a trained model as a Hugging Face folder that loads without this library: a run or a checkpoint → OUT.

What was written is loaded with transformers, off the network, and compared with the model: ids and scores on a few lines.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from xlm.errors import UserError, exits_cleanly
from xlm.interop.exported import export_folder
from xlm.interop.families import FAMILIES
from xlm.interop.kept_tensors import read_kept
from xlm.interop.output_folder import new_folder
from xlm.interop.self_check import check_exported, transformers_module
from xlm.interop.tokenizer_export import inexact_remark
from xlm.runs.folder import RunFolder
from xlm.training.checkpoint import latest_checkpoint
from xlm.training.weights import DESCRIPTION, load_model_weights
from xlm.vocab.parts import inexact_scores
from xlm.vocab.vocabulary import Vocabulary


@exits_cleanly
def main() -> None:
    """Export, check, and say where it lies and how far from the model it is."""
    arguments = parser().parse_args()
    checkpoint, vocabulary_folder = sources(arguments)
    if not arguments.no_check:
        transformers_module()
    vocabulary = Vocabulary.load(vocabulary_folder)
    weights = load_model_weights(checkpoint)
    kept = read_kept(checkpoint)
    recipe = str(json.loads((checkpoint / DESCRIPTION).read_text(encoding="utf-8"))["recipe_fingerprint"])
    trained = weights.build()
    with new_folder(arguments.output) as partial:
        models = export_folder(weights, vocabulary, partial, recipe_fingerprint=recipe, family=arguments.family, kept=kept)
        inexact = inexact_scores(vocabulary.serialized_model)
        if inexact:
            print(f"export: {inexact_remark(inexact)}")
        for model in models:
            print(f"export: {model.part or 'the model'} as {model.architecture} ({model.family})")
            if model.kept:
                print(f"export: with {model.kept} tensors that import had kept apart")
            if arguments.no_check:
                continue
            result = check_exported(model, model.folder(partial), vocabulary, trained)
            differ = f"differ by at most {result.worst:.1e} (largest: {result.largest:.1f})"
            print(f"export: scores of every head at {result.tokens:,} tokens {differ}")
    print(f"export: step {weights.step:,} of {checkpoint}, in {arguments.output}")


def sources(arguments: argparse.Namespace) -> tuple[Path, Path]:
    """Return the checkpoint and the vocabulary's folder; raises UserError where one cannot be found."""
    if arguments.run_dir is not None:
        run = RunFolder(arguments.run_dir)
        checkpoint = latest_checkpoint(run.train)
        if checkpoint is None:
            raise UserError("there is no complete checkpoint here; run pipelines/pretrain.py first.", file=run.train)
        return checkpoint, arguments.vocabulary or run.vocabulary
    checkpoint = arguments.checkpoint
    if arguments.vocabulary is not None:
        return checkpoint, arguments.vocabulary
    # A model folder brings its own; a checkpoint is two folders below the run that has it.
    runs = list(checkpoint.resolve().parents)[2:3]
    beside = [folder for folder in (checkpoint, *(run / "vocabulary" for run in runs)) if (folder / "spm.model").is_file()]
    if not beside:
        raise UserError("there is no vocabulary beside this checkpoint; pass its folder with --vocabulary.", file=checkpoint)
    return checkpoint, beside[0]


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    result = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    source = result.add_mutually_exclusive_group(required=True)
    source.add_argument("--run-dir", type=Path, metavar="DIR", help="run folder: its newest whole checkpoint")
    source.add_argument("--checkpoint", type=Path, metavar="DIR", help="a checkpoint, or what import_hf.py wrote")
    result.add_argument("--vocabulary", type=Path, default=None, metavar="DIR", help="folder with spm.model (default: the run's)")
    result.add_argument("--family", default=None, metavar="NAME", help=f"one of {', '.join(FAMILIES)} (default: the first that fits)")
    result.add_argument("--no-check", action="store_true", help="do not load and compare what was written (needs no transformers)")
    result.add_argument("output", type=Path, metavar="OUT", help="folder to write; must not exist")
    return result


if __name__ == "__main__":
    main()
