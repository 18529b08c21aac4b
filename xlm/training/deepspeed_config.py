"""The DeepSpeed file beside a recipe: it owns ZeRO and communication, and no number that the recipe owns.

DeepSpeed reads top-level keys with ``.get``, so a typo would be ignored, and a batch size or a clipping
value in two files would be two truths (promise 5). Here unknown keys are errors with a suggestion, a
recipe's number with another value is an error that names both, and the recipe's numbers are injected.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlm.config.training import TrainingSection
from xlm.errors import NotSupportedYetError, UserError, suggest
from xlm.training.offload import OFFLOAD_KEYS, check_offload
from xlm.training.precision import Precision, check_supported

# What the file may say. Everything else of DeepSpeed's is either the recipe's or not proved here.
TOP_KEYS = ("zero_optimization", "steps_per_print", "wall_clock_breakdown")
ZERO_KEYS = (
    "stage",
    "reduce_bucket_size",
    "allgather_bucket_size",
    "overlap_comm",
    "contiguous_gradients",
    "reduce_scatter",
    "allgather_partitions",
    "round_robin_gradients",
    "sub_group_size",
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    *OFFLOAD_KEYS,
)
# What is not listed here and is none of the recipe's numbers is a whole number from 0 on.
SWITCHES = frozenset(
    {
        "wall_clock_breakdown",
        "overlap_comm",
        "contiguous_gradients",
        "reduce_scatter",
        "allgather_partitions",
        "round_robin_gradients",
    }
)
POSITIVE = frozenset({"steps_per_print"})  # DeepSpeed divides by it
NOT_YET_KEYS = (
    "compression_training",
    "data_efficiency",
    "curriculum_learning",
    "sparse_attention",
    "tensor_parallel",
    "torch_autocast",
    "flops_profiler",
    "aio",
)
DEFAULT_STAGE = 0
OPTIMIZER_TYPES = {"adamw": "AdamW", "lamb": "Lamb", "muon": "Muon"}  # DeepSpeed's names
# Sections that the recipe writes; what DeepSpeed knows beside these keys would change the numbers.
OWNED = {
    "bf16": ("enabled",),
    "fp16": ("enabled", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale"),
    "data_types": ("grad_accum_dtype",),
}


def load_deepspeed_config(
    path: Path, training: TrainingSection, precision: Precision, *, micro_steps: int, world_size: int
) -> dict[str, Any]:
    """Return the complete DeepSpeed configuration: the file's keys and the recipe's numbers.

    ``micro_steps`` is how many micro-batches of each rank make one step. Raises UserError for a file
    that is missing, is not JSON, has an unknown key or a value of the wrong type, contradicts the recipe,
    or asks for a combination of stage and precision that is not supported.
    """
    found = read_deepspeed_file(path)
    _check_keys(found, path)
    _check_values(found, path)
    owned = recipe_numbers(training, precision, micro_steps=micro_steps, world_size=world_size)
    for dotted, (value, name) in owned.items():
        _check_agrees(found, dotted, value, name, path)
    config: dict[str, Any] = {key: value for key, value in found.items() if key in TOP_KEYS}
    config["zero_optimization"] = dict(found.get("zero_optimization", {}))
    config["zero_optimization"].setdefault("stage", DEFAULT_STAGE)
    check_supported(config["zero_optimization"]["stage"], precision)
    check_offload(config["zero_optimization"], config["zero_optimization"]["stage"], training, path)
    for dotted, (value, _) in owned.items():
        if not dotted.startswith(("optimizer.", "scheduler.")):  # the optimizer is handed over as an object
            _set(config, dotted, value)
    config.setdefault("steps_per_print", 1 << 30)  # DeepSpeed's own lines would cut through the progress line
    return config


def zero_stage(config: Mapping[str, Any]) -> int:
    """Return the ZeRO stage of a loaded configuration."""
    return int(config["zero_optimization"]["stage"])


def recipe_numbers(training: TrainingSection, precision: Precision, *, micro_steps: int, world_size: int) -> dict[str, tuple[Any, str]]:
    """Return what the recipe owns: DeepSpeed's dotted key -> (value, the recipe's name for it).

    DeepSpeed counts batches in units of its micro-batch; a micro-batch here is a packed batch of varying
    tokens, so one unit is one packed batch. Gradients are accumulated and reduced in fp32; at stages 2 and
    3 under bf16 the gradient of a single micro-batch is still bf16.
    """
    optimizer = training.optimizer
    numbers: dict[str, tuple[Any, str]] = {
        "train_micro_batch_size_per_gpu": (1, "training.micro_batch_tokens (one packed batch)"),
        "gradient_accumulation_steps": (micro_steps, "training.tokens_per_step / micro_batch_tokens"),
        "train_batch_size": (micro_steps * world_size, "training.tokens_per_step (in packed batches)"),
        "gradient_clipping": (training.gradient_clipping, "training.gradient_clipping"),
        "bf16.enabled": (precision == "bf16", f"training.precision ({precision})"),
        "fp16.enabled": (precision == "fp16", f"training.precision ({precision})"),
        "optimizer.type": (OPTIMIZER_TYPES[optimizer.kind], "training.optimizer.kind"),
        "optimizer.params.lr": (optimizer.learning_rate, "training.optimizer.learning_rate"),
        "optimizer.params.betas": (list(optimizer.betas), "training.optimizer.betas"),
        "optimizer.params.eps": (optimizer.epsilon, "training.optimizer.epsilon"),
        "optimizer.params.weight_decay": (optimizer.weight_decay, "training.optimizer.weight_decay"),
        "communication_data_type": ("fp32", "the fp32 reduction of every precision"),
    }
    if precision == "fp16":
        scale = training.loss_scale
        numbers |= {
            "fp16.loss_scale": (0, "training.loss_scale (a dynamic one)"),
            "fp16.initial_scale_power": (scale.initial_power, "training.loss_scale.initial_power"),
            "fp16.loss_scale_window": (scale.window, "training.loss_scale.window"),
            "fp16.min_loss_scale": (scale.minimum, "training.loss_scale.minimum"),
            "fp16.hysteresis": (1, "training.loss_scale (the first overflow halves it)"),
        }
    if precision != "fp32":
        numbers["data_types.grad_accum_dtype"] = ("fp32", "the fp32 accumulation of every precision")
    return numbers


def read_deepspeed_file(path: Path) -> dict[str, Any]:
    """Return what a DeepSpeed file says, unchecked; raises UserError where it is missing or no JSON object."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError("this DeepSpeed file does not exist; deepspeed_configs/ has one for each ZeRO stage.", file=path) from None
    except (OSError, UnicodeDecodeError):
        raise UserError("this DeepSpeed file cannot be read as UTF-8 text.", file=path) from None
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"not valid JSON ({error.msg}).", file=path, line=error.lineno) from None
    if not isinstance(found, dict) or not isinstance(found.get("zero_optimization", {}), dict):
        raise UserError("a JSON object is expected, and another under 'zero_optimization'.", file=path)
    return found


def _check_keys(found: Mapping[str, Any], path: Path) -> None:
    owned_tops = {"train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size", "gradient_clipping"}
    owned_tops |= {"bf16", "fp16", "optimizer", "communication_data_type", "data_types"}
    for key in found:
        if key in NOT_YET_KEYS:
            raise NotSupportedYetError(f"'{key}'", "remove it", file=path)
        if key == "activation_checkpointing":
            raise UserError("'activation_checkpointing' belongs to the recipe (training.activation_checkpointing); remove it.", file=path)
        if key == "scheduler":
            raise UserError("'scheduler' belongs to the recipe (training.schedule); remove it here.", file=path)
        if isinstance(found[key], Mapping) and key in ("bf16", "fp16", "data_types"):
            _check_owned_section(found[key], key, path)
        if key not in TOP_KEYS and key not in owned_tops:
            allowed = [*TOP_KEYS, *sorted(owned_tops)]
            raise UserError(f"unknown key '{key}'{suggest(key, allowed) or '; allowed here: ' + ', '.join(TOP_KEYS)}.", file=path)
    for key in found.get("zero_optimization", {}):
        if key not in ZERO_KEYS:
            hint = suggest(key, ZERO_KEYS) or "; allowed there: " + ", ".join(ZERO_KEYS)
            raise UserError(f"unknown key 'zero_optimization.{key}'{hint}.", file=path)
    stage = found.get("zero_optimization", {}).get("stage", DEFAULT_STAGE)
    if not isinstance(stage, int) or isinstance(stage, bool) or not 0 <= stage <= 3:
        raise UserError(f"zero_optimization.stage is {stage!r}; allowed are 0, 1, 2 and 3.", file=path)


def _check_owned_section(section: Mapping[str, Any], name: str, path: Path) -> None:
    for key in section:
        if key not in OWNED[name]:
            hint = suggest(key, OWNED[name]) or "; the recipe owns this section, and of it may be repeated: " + ", ".join(OWNED[name])
            raise UserError(f"unknown key '{name}.{key}'{hint}.", file=path)


def _check_values(found: Mapping[str, Any], path: Path) -> None:
    values = {key: found[key] for key in TOP_KEYS if key in found and key != "zero_optimization"}
    zero = found.get("zero_optimization", {})
    values |= {f"zero_optimization.{key}": value for key, value in zero.items() if key not in ("stage", *OFFLOAD_KEYS)}
    for dotted, value in values.items():
        key = dotted.rpartition(".")[2]
        if key in SWITCHES:
            allowed, fits = "true or false", isinstance(value, bool)
        else:
            least = int(key in POSITIVE)
            # JSON has one kind of number, and 5e8 is how DeepSpeed's own documentation writes a bucket.
            whole = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value == int(value)
            allowed, fits = f"a whole number from {least} on", whole and value >= least
        if not fits:
            raise UserError(f"'{dotted}' is {json.dumps(value)}; allowed is {allowed}.", file=path)


def _check_agrees(found: Mapping[str, Any], dotted: str, value: object, name: str, path: Path) -> None:
    here: Any = found
    parts = dotted.split(".")
    for depth, part in enumerate(parts):
        if not isinstance(here, Mapping):
            section = ".".join(parts[:depth])
            raise UserError(
                f"'{section}' is {json.dumps(here)}; allowed is a JSON object, but the recipe owns it: remove it here.", file=path
            )
        if part not in here:
            return
        here = here[part]
    if here not in (value, "auto"):
        raise UserError(f"'{dotted}' is {here!r} here but {value!r} by the recipe's {name}; remove it here.", file=path)


def _set(config: dict[str, Any], dotted: str, value: object) -> None:
    *parents, last = dotted.split(".")
    here = config
    for part in parents:
        here = here.setdefault(part, {})
    here[last] = value
