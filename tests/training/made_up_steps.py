"""Made-up packed rows, and a reference loss written from the definitions, one sequence at a time."""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from xlm.batching.packed_batch import OBJECTIVE_CODE, PackedBatch
from xlm.config.model import ModelConfig
from xlm.config.phases import ObjectiveShare
from xlm.config.recipe import ContrastiveSection, OptimizerSection, TrainingSection
from xlm.seeding import keyed_generator

VOCABULARY, LANGUAGES = 50, ("en", "de", "ru")
MODEL = ModelConfig(width=16, layers=2, heads=2, feed_forward=32, max_positions=16, language_embeddings=True)
OBJECTIVES = {
    "mlm": ObjectiveShare(share=0.4),
    "tlm": ObjectiveShare(share=0.3, loss_weight=0.5),
    "contrastive": ObjectiveShare(share=0.3, loss_weight=0.7),
}
TRAINING = TrainingSection(
    tokens_per_step=128,
    micro_batch_tokens=128,
    optimizer=OptimizerSection(learning_rate=1e-2, token_embedding_learning_rate_scale=0.5),
    gradient_clipping=0.5,
    contrastive=ContrastiveSection(temperature=0.2),
)


def sequence(generator, objective, *, predictions, key=-1, index=-1, row=0):
    length = int(generator.integers(3, 9))
    return {
        "ids": generator.integers(5, VOCABULARY, length),
        "language": int(generator.integers(0, len(LANGUAGES))),
        "positions": np.sort(generator.permutation(length)[:predictions]),
        "labels": generator.integers(5, VOCABULARY, predictions),
        "objective": OBJECTIVE_CODE[objective],
        "key": key,
        "index": index,
        "row": row,
    }


def make_rows(step, *, token_rows=5, pair_rows=3):
    """Rows of sequences of one global batch; the same for everyone who asks."""
    generator = keyed_generator("made-up rows", step)
    rows = []
    for row in range(token_rows):
        objective = "mlm" if row % 2 else "tlm"
        rows.append([sequence(generator, objective, predictions=int(generator.integers(1, 3)), row=row) for _ in range(2)])
    index = 0
    for row in range(token_rows, token_rows + pair_rows):
        pairs = []
        for _ in range(int(generator.integers(1, 4))):
            key = int(generator.integers(0, 4))  # few keys: some pairs say the same thing
            pairs += [sequence(generator, "contrastive", predictions=0, key=key, index=index, row=row) for _ in range(2)]
            index += 1
        rows.append(pairs)
    return rows


def pack(rows):
    sequences = [one for row in rows for one in row]
    lengths = [len(one["ids"]) for one in sequences]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    def joined(parts):
        return torch.from_numpy(np.concatenate([np.asarray(part, dtype=np.int64) for part in parts] or [np.zeros(0, np.int64)]))

    def each(name):
        return torch.tensor([one[name] for one in sequences], dtype=torch.int64)

    return PackedBatch(
        input_ids=joined([one["ids"] for one in sequences]),
        position_ids=joined([np.arange(length) for length in lengths]),
        token_type_ids=torch.zeros(int(starts[-1]), dtype=torch.int64),
        language_ids=joined([np.full(len(one["ids"]), one["language"]) for one in sequences]),
        cu_seqlens=torch.from_numpy(starts.astype(np.int32)),
        predict_positions=joined([one["positions"] + start for one, start in zip(sequences, starts, strict=False)]),
        labels=joined([one["labels"] for one in sequences]),
        prediction_objective=joined([np.full(len(one["labels"]), one["objective"]) for one in sequences]),
        sequence_objective=each("objective"),
        pair_key=each("key"),
        pair_index=each("index"),
        sequence_label=torch.full((len(sequences),), -1, dtype=torch.int64),
        row_id=each("row"),
    )


def deal(rows, world_size, micro_steps, rank):
    """This rank's micro-batches: rows of pairs all in the first, the other rows round robin."""
    contrastive = OBJECTIVE_CODE["contrastive"]
    token_rows = [row for row in rows if row[0]["objective"] != contrastive]
    pair_rows = [row for row in rows if row[0]["objective"] == contrastive]
    batches = [[] for _ in range(world_size * micro_steps)]
    for number, row in enumerate(token_rows):
        batches[number % len(batches)].append(row)
    for number, row in enumerate(pair_rows):
        batches[number % world_size].append(row)
    return [pack(batches[micro * world_size + rank]) for micro in range(micro_steps)]


def reference_loss(model, rows):
    """The loss of a global batch by its definition."""
    total, predicted, sides = 0.0, 0, {}
    for one in (one for row in rows for one in row):
        batch = pack([[one]])
        hidden = model.encode(batch, model.token_tables())
        if one["objective"] == OBJECTIVE_CODE["contrastive"]:
            inside = hidden[1:-1] if len(hidden) > 2 else hidden
            sides.setdefault(one["index"], []).append((inside.float().mean(0), one["key"]))
            continue
        logits = model.logits(hidden[batch.predict_positions])
        name = ["mlm", "tlm"][one["objective"]]
        total = total + OBJECTIVES[name].loss_weight * F.cross_entropy(logits.float(), batch.labels, reduction="sum")
        predicted += len(batch.labels)
    total = total / max(predicted, 1)
    if sides:
        losses, temperature = [], TRAINING.contrastive.temperature
        for (source, key), (target, _) in sides.values():
            others = [pair for pair in sides.values() if pair[0][1] != key]
            forth = [torch.cosine_similarity(source, pair[1][0], dim=0) for pair in others]
            back = [torch.cosine_similarity(pair[0][0], target, dim=0) for pair in others]
            own = torch.cosine_similarity(source, target, dim=0)
            for scores in (forth, back):
                losses.append(torch.logsumexp(torch.stack([own, *scores]) / temperature, 0) - own / temperature)
        total = total + OBJECTIVES["contrastive"].loss_weight * torch.stack(losses).mean()
    return total
