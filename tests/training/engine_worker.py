"""One rank of a made-up training: argv is a JSON list of scenarios; rank 0 writes what each gave.

A scenario: {"stage", "precision", "micro_steps", "steps", "rows" (options of `make_rows`; with "objectives" the model
has all heads), "model" and "training" (other values of these sections), "zero" (further keys beside the stage),
"validate" (after every step, on `HELD_OUT`), "poison" (step whose gradient is infinite), "diverged" (step whose embeddings are NaN),
"resume_after" (save a checkpoint after that many steps; go on from it with a fresh engine as well)}.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from made_up_steps import COMPLETE, HELD_OUT, LANGUAGES, MODEL, OBJECTIVES, TRAINING, VOCABULARY, deal, make_rows

from xlm.config.training import TrainingSection
from xlm.model.encoder import checkpoint_layers
from xlm.model.pretraining import PretrainingModel
from xlm.training.checkpoint import latest_checkpoint, load_checkpoint
from xlm.training.deepspeed_config import load_deepspeed_config
from xlm.training.distributed import Process, barrier, gather_numbers, join_group, leave_group
from xlm.training.engine import TrainingEngine
from xlm.training.objectives import PretrainingObjective
from xlm.training.saving import save_checkpoint
from xlm.training.statistics import LossStatistics
from xlm.training.step_context import BatchCounts, StepContext
from xlm.training.validation import Validation
from xlm.training.weights import ModelDescription


def model_of(scenario):
    complete = COMPLETE if "objectives" in scenario.get("rows", {}) else MODEL
    return complete.model_copy(update=scenario.get("model", {}))


def micro_steps_of(scenario, step):
    """A number, or numbers for the steps in turn."""
    given = scenario["micro_steps"]
    return given[step % len(given)] if isinstance(given, list) else given


def most_micro_steps(scenario):
    return max(micro_steps_of(scenario, step) for step in range(scenario["steps"]))


def make_engine(scenario, process):
    model = PretrainingModel(model_of(scenario), VOCABULARY, len(LANGUAGES))
    model.initialise(3)
    if scenario.get("training", {}).get("activation_checkpointing"):
        checkpoint_layers(model)
    statistics = LossStatistics(("only",), LANGUAGES, process.device())
    training = TrainingSection.model_validate({**TRAINING.model_dump(mode="json"), **scenario.get("training", {})})
    objective = PretrainingObjective(model, training, statistics)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ds.json"
        zero = {"stage": scenario["stage"]} | scenario.get("zero", {})
        path.write_text(json.dumps({"zero_optimization": zero}), encoding="utf-8")
        config = load_deepspeed_config(
            path, training, scenario.get("precision", "fp32"), micro_steps=most_micro_steps(scenario), world_size=process.world_size
        )
    return TrainingEngine(objective, config, training.optimizer, training.loss_scale)


def run_step(engine, process, scenario, step):
    rows = make_rows(step, **scenario.get("rows", {}))
    batches = deal(rows, process.world_size, micro_steps_of(scenario, step), process.rank)
    everyone = gather_numbers(BatchCounts.of(batches).numbers(), engine.device)
    objectives = dict(OBJECTIVES)
    if scenario.get("poison") == step:
        objectives["mlm"] = OBJECTIVES["mlm"].model_copy(update={"loss_weight": float("inf")})
    context = StepContext(tuple(BatchCounts(*counts) for counts in everyone), objectives, 0, process.rank)
    hook = engine.objective.model.encoder.embeddings.register_forward_hook(
        lambda module, given, embedded: embedded * float("nan") if scenario.get("diverged") == step else embedded
    )
    for number, batch in enumerate(batches):
        engine.accumulate(batch.to(engine.device), context, with_pairs=number == 0 and context.pairs > 0, last=number == len(batches) - 1)
    hook.remove()
    result = engine.step(1e-2)
    engine.objective.statistics.commit_step(result.applied)
    engine.objective.statistics.reduce()
    return result


class HeldOut:
    """The batches of `HELD_OUT`, some of them empty."""

    languages, objectives = LANGUAGES, OBJECTIVES

    def __init__(self, process):
        self.process = process

    def __iter__(self):
        return iter(deal(HELD_OUT, self.process.world_size, 3, self.process.rank))


def run_scenario(scenario, process, folder):
    engine = make_engine(scenario, process)
    told = run_steps(engine, process, scenario, 0, folder)
    if "resume_after" in scenario:
        fresh = make_engine(scenario, process)
        start = load_checkpoint(fresh, latest_checkpoint(folder))["step"]
        # Saving again right after loading has broken other set-ups. It takes the folder away that others may still read.
        barrier()
        save(fresh, process, scenario, start, folder)
        told["resumed"] = run_steps(fresh, process, {**scenario, "resume_after": None}, start, folder)
    return told


def save(engine, process, scenario, step, folder):
    about = ModelDescription(model_of(scenario).model_dump(mode="json"), VOCABULARY, "voc", LANGUAGES, step, "-", "-")
    return save_checkpoint(engine, folder, process, about, {"step": step}, 2)


def run_steps(engine, process, scenario, start, folder):
    validation = Validation(engine, HeldOut(process), process)
    told = {"losses": [], "norms": [], "applied": [], "scales": [], "too_high": []}
    for step in range(start, scenario["steps"]):
        if scenario.get("resume_after") == step:
            save(engine, process, scenario, step, folder)
        result = run_step(engine, process, scenario, step)
        told["losses"].append(engine.objective.statistics.take_window().loss)
        if scenario.get("validate"):
            told["validation"] = validation.measure()
        told["norms"].append(result.gradient_norm if result.applied else None)
        told["applied"].append(result.applied)
        told["too_high"].append(result.scale_too_high)
        told["scales"].append(engine.loss_scale.value if engine.loss_scale else None)
    told["weights"] = {name: tensor.flatten().tolist() for name, tensor in engine.full_weights()}
    return told


def main():
    scenarios, out = json.loads(sys.argv[1]), Path(sys.argv[2])
    process = Process.from_environment()
    torch.set_num_threads(1)
    join_group(process, timeout_s=300)
    results = [run_scenario(scenario, process, out.parent / f"train{number}") for number, scenario in enumerate(scenarios)]
    if process.is_main:
        out.write_text(json.dumps(results), encoding="utf-8")
    leave_group()


if __name__ == "__main__":
    main()
