"""One rank that trains made-up steps of several shapes: argv is a JSON list of them; rank 0 writes what memory each used.

A shape: {"model", "vocabulary", "tokens" (of a micro-batch, in sequences of "length"), "micro_steps", "predicted" (share of
tokens), "precision", "zero", "training"}. Memory is resident memory beyond what the process holds before the model is built.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.training.memory import peak_bytes, release_free_memory, reset_peak, resident_bytes
from xlm.batching.packed_batch import OBJECTIVE_CODE, PackedBatch
from xlm.config.model import ModelConfig
from xlm.config.phases import ObjectiveShare
from xlm.config.training import OptimizerSection, TrainingSection
from xlm.model.encoder import checkpoint_layers
from xlm.model.pretraining import PretrainingModel
from xlm.runs.allocator import return_large_blocks
from xlm.training.deepspeed_config import load_deepspeed_config
from xlm.training.deepspeed_import import import_deepspeed
from xlm.training.distributed import Process, join_group, leave_group
from xlm.training.engine import TrainingEngine
from xlm.training.objectives import PretrainingObjective
from xlm.training.statistics import LossStatistics
from xlm.training.step_context import BatchCounts, StepContext

TINY = {"model": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 32, "max_positions": 128}, "vocabulary": 50, "tokens": 128}


def made_up_batch(shape, seed):
    generator = torch.Generator().manual_seed(seed)
    length, count = shape["length"], shape["tokens"] // shape["length"]
    tokens, predictions = length * count, int(shape["predicted"] * length) * count

    def ids(size, most):
        return torch.randint(0, most, (size,), generator=generator)

    return PackedBatch(
        input_ids=ids(tokens, shape["vocabulary"]),
        position_ids=torch.arange(length).repeat(count),
        token_type_ids=torch.zeros(tokens, dtype=torch.int64),
        language_ids=torch.zeros(tokens, dtype=torch.int64),
        cu_seqlens=torch.arange(0, tokens + 1, length, dtype=torch.int32),
        predict_positions=torch.randperm(tokens, generator=generator)[:predictions].sort().values,
        labels=ids(predictions, shape["vocabulary"]),
        prediction_objective=torch.full((predictions,), OBJECTIVE_CODE["mlm"]),
        sequence_objective=torch.full((count,), OBJECTIVE_CODE["mlm"]),
        pair_key=torch.full((count,), -1),
        pair_index=torch.full((count,), -1),
        sequence_label=torch.full((count,), -1),
        row_id=torch.arange(count),
    )


def make_engine(shape, process):
    config = ModelConfig.model_validate(shape["model"])
    settings = {"tokens_per_step": 1 << 20, "micro_batch_tokens": shape["tokens"], **shape.get("training", {})}
    training = TrainingSection.model_validate({"optimizer": OptimizerSection(learning_rate=1e-3).model_dump(mode="json"), **settings})
    model = PretrainingModel(config, shape["vocabulary"], 1, seed=0)
    if training.activation_checkpointing:
        checkpoint_layers(model)
    objective = PretrainingObjective(model, training, LossStatistics(("only",), ("en",), process.device()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ds.json"
        path.write_text(json.dumps({"zero_optimization": shape["zero"]}), encoding="utf-8")
        loaded = load_deepspeed_config(path, training, shape["precision"], micro_steps=shape["micro_steps"], world_size=process.world_size)
    return TrainingEngine(objective, loaded, training.optimizer, training.loss_scale)


def measure(shape, process):
    # What the libraries load at their first step is theirs, whatever the model.
    train({**shape, **TINY}, process)
    release_free_memory()
    before = resident_bytes()
    return {name: value - before for name, value in train(shape, process).items()}


def train(shape, process):
    """Two steps; the highest resident memory while building, while gradients add up and while weights change, and what stays."""
    reset_peak()
    engine = make_engine(shape, process)
    found = {"building": peak_bytes(), "accumulating": 0, "stepping": 0}
    for step in range(2):
        batches = [made_up_batch(shape, 100 * step + 2 * number + process.rank) for number in range(shape["micro_steps"])]
        counts = tuple(BatchCounts.of(batches) for _ in range(process.world_size))
        context = StepContext(counts, {"mlm": ObjectiveShare(share=1.0)}, 0, process.rank)
        reset_peak()
        for number, batch in enumerate(batches):
            engine.accumulate(batch, context, with_pairs=False, last=number == len(batches) - 1)
        found["accumulating"] = max(found["accumulating"], peak_bytes())
        reset_peak()
        engine.step(1e-3)
        engine.objective.statistics.commit_step(True)
        found["stepping"] = max(found["stepping"], peak_bytes())
    return found | {"after": resident_bytes()}


def main():
    shapes, out, first_port = json.loads(sys.argv[1]), Path(sys.argv[2]), int(os.environ["MASTER_PORT"])
    return_large_blocks()
    torch.set_num_threads(1)
    import_deepspeed()
    process = Process.from_environment()
    for number, shape in enumerate(shapes):
        # A process of its own for each, without importing everything again: what one leaves behind is not taken for another's.
        child = os.fork()
        if child == 0:
            os.environ["MASTER_PORT"] = str(first_port + number)
            join_group(process, timeout_s=500)
            found = measure(shape, process)
            if process.is_main:
                (out / f"{number}.json").write_text(json.dumps(found), encoding="utf-8")
            leave_group()
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit(f"shape {number} ended with {status}")


if __name__ == "__main__":
    main()
