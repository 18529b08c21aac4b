"""The command line of the memory estimate: from a recipe or a preset to the lines that are printed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from xlm.config.model import ModelConfig
from xlm.config.phases import value_at
from xlm.config.presets import PRESET_KEY, preset_names, published
from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.config.training import OptimizerSection, TrainingSection
from xlm.errors import UserError
from xlm.training.activation_memory import MicroBatch
from xlm.training.deepspeed_config import load_deepspeed_config
from xlm.training.memory_table import Training, memory_lines
from xlm.training.precision import SUPPORTED, Precision
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.vocabulary import Vocabulary

MOST_RANKS = 100_000  # whose parts are looked at one by one


def memory_parser() -> argparse.ArgumentParser:
    """Return the parser of --memory; what is not given is the recipe's, or a usual value."""
    parser = argparse.ArgumentParser(description="Estimate the memory of each rank (deepspeed_configs/README.md).", allow_abbrev=False)
    parser.add_argument("--memory", action="store_true", help="estimate memory instead of showing the data plan")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--preset", choices=preset_names(), metavar="NAME", help="a model preset: " + ", ".join(preset_names()))
    which.add_argument("--recipe", type=Path, metavar="FILE", help="recipe, YAML (pipelines/recipes/)")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="change one value of the recipe; repeatable")
    parser.add_argument("--deepspeed_config", type=Path, metavar="FILE", help="one DeepSpeed file (default: all of deepspeed_configs/)")
    parser.add_argument("--stage", type=int, choices=(0, 1, 2, 3), help="only files of this ZeRO stage")
    parser.add_argument("--ranks", type=int, default=8, metavar="N", help="GPUs, or processes without any (default: 8)")
    parser.add_argument("--precision", choices=sorted(SUPPORTED), help="default: the recipe's, bf16 where that is auto")
    parser.add_argument("--micro_batch_tokens", type=int, metavar="N", help="default: the recipe's, or 16384")
    parser.add_argument("--activation_checkpointing", action="store_true", help="as if the recipe said so")
    return parser


def print_memory(arguments: argparse.Namespace, folder: Path) -> None:
    """Print the memory table of a recipe or a preset; DeepSpeed files are in ``folder`` unless one is named."""
    if not 1 <= arguments.ranks <= MOST_RANKS or (arguments.micro_batch_tokens is not None and arguments.micro_batch_tokens < 1):
        raise UserError(f"--ranks and --micro_batch_tokens are whole numbers from 1 on, and ranks at most {MOST_RANKS:,}.")
    if arguments.set and arguments.preset:
        raise UserError("--set changes a value of a recipe, and a preset has none; give --recipe, or leave --set out.")
    training, section = _of_recipe(arguments) if arguments.recipe else _of_preset(arguments)
    paths = [arguments.deepspeed_config] if arguments.deepspeed_config else sorted(folder.glob("*.json"))
    micro = {"micro_steps": training.micro_batch.number, "world_size": training.ranks}
    chosen: dict[str, Any] = {}
    left_out: list[str] = []
    for path in paths:
        precision = training.precision if arguments.deepspeed_config else "fp32"  # of the table, cells that are not supported say so
        try:
            zero = load_deepspeed_config(path, section, precision, **micro)["zero_optimization"]
        except UserError as error:  # of a folder of files some are not for this optimizer
            if arguments.deepspeed_config:
                raise
            left_out.append(f"left out: {error}")
            continue
        if arguments.stage in (None, zero["stage"]):
            chosen[path.name] = zero
    if not chosen:
        raise UserError(f"no DeepSpeed file is of stage {arguments.stage}; leave --stage out, or give another --deepspeed_config.")
    print("\n".join([*memory_lines(training, chosen), *left_out]))


def _of_recipe(arguments: argparse.Namespace) -> tuple[Training, TrainingSection]:
    recipe = load_config(Recipe, arguments.recipe, arguments.set)
    own = recipe.training
    tokens = arguments.micro_batch_tokens or own.micro_batch_tokens
    source = recipe.vocabulary
    vocabulary = Vocabulary.load(source).size if source.is_dir() else load_config(VocabularySpec, source).size
    languages = {language for phase in recipe.phases if phase.languages != "all" for language in phase.languages}
    predicted = max(
        1.0 if "clm" in phase.objectives else max(value_at(phase.mask_rate, 0.0), value_at(phase.mask_rate, 1.0)) for phase in recipe.phases
    )
    training = Training(
        model=recipe.model,
        vocabulary=vocabulary,
        languages=max(len(languages), 1),
        optimizer=own.optimizer,
        precision=arguments.precision or ("bf16" if own.precision == "auto" else own.precision),
        ranks=arguments.ranks,
        micro_batch=_micro_batch(tokens, max(phase.sequence_length for phase in recipe.phases), predicted, own.tokens_per_step, arguments),
        recomputes=own.activation_checkpointing or arguments.activation_checkpointing,
    )
    return training, own


def _of_preset(arguments: argparse.Namespace) -> tuple[Training, TrainingSection]:
    model = ModelConfig.model_validate({PRESET_KEY: arguments.preset})
    known = published(arguments.preset)
    tokens = arguments.micro_batch_tokens or 16384
    optimizer = OptimizerSection(learning_rate=1e-3)
    precision: Precision = arguments.precision or "bf16"
    training = Training(
        model=model,
        vocabulary=known.vocabulary_size,
        languages=known.languages,
        optimizer=optimizer,
        precision=precision,
        ranks=arguments.ranks,
        # BERT's share of predictions, and as many tokens a step as give every rank two micro-batches.
        micro_batch=_micro_batch(tokens, min(model.max_positions, 512), 0.15, 2 * tokens * arguments.ranks, arguments),
        recomputes=arguments.activation_checkpointing,
    )
    return training, TrainingSection(tokens_per_step=2 * tokens * arguments.ranks, micro_batch_tokens=tokens, optimizer=optimizer)


def _micro_batch(tokens: int, length: int, predicted: float, tokens_per_step: int, arguments: argparse.Namespace) -> MicroBatch:
    return MicroBatch(tokens, length, int(predicted * tokens), max(1, -(-tokens_per_step // (tokens * arguments.ranks))))
