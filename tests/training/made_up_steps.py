"""Made-up packed rows of every objective, and a reference loss written from the definitions, one sequence at a time."""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from xlm.batching.packed_batch import OBJECTIVE_CODE, PackedBatch
from xlm.config.model import GeneratorSection, ModelConfig
from xlm.config.phases import ObjectiveShare
from xlm.config.training import ContrastiveSection, OptimizerSection, TrainingSection
from xlm.seeding import keyed_generator

VOCABULARY, LANGUAGES = 50, ("en", "de", "ru")
MODEL = ModelConfig(width=16, layers=2, heads=2, feed_forward=32, max_positions=16, language_embeddings=True)
# With a head for everything.
COMPLETE = MODEL.model_copy(
    update={
        "token_types": 2,
        "sentence_head": True,
        "discriminator_head": True,
        "generator": GeneratorSection(width=8, layers=1, heads=2, feed_forward=16),
    }
)
MASK = 4
CODES = {code: name for name, code in OBJECTIVE_CODE.items()}
EVERYTHING = ("mlm", "rtd", "clm", "tlm", "sop", "nsp")
OBJECTIVES = {
    "mlm": ObjectiveShare(share=0.2),
    "tlm": ObjectiveShare(share=0.2, loss_weight=0.5),
    "contrastive": ObjectiveShare(share=0.2, loss_weight=0.7),
    "clm": ObjectiveShare(share=0.1, loss_weight=0.9),
    "nsp": ObjectiveShare(share=0.1, loss_weight=1.1, sentence_weight=0.6),
    "sop": ObjectiveShare(share=0.1, loss_weight=0.8, sentence_weight=1.3),
    "rtd": ObjectiveShare(share=0.1, loss_weight=0.4, discriminator_weight=3.0),
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
    one = {
        "ids": generator.integers(5, VOCABULARY, length),
        "language": int(generator.integers(0, len(LANGUAGES))),
        "positions": np.sort(generator.permutation(length)[:predictions]),
        "labels": generator.integers(5, VOCABULARY, predictions),
        "objective": OBJECTIVE_CODE[objective],
        "key": key,
        "index": index,
        "row": row,
        "label": int(generator.integers(0, 2)) if objective in ("nsp", "sop") else -1,
        "types": np.arange(length) // 3 % 2 if objective in ("nsp", "sop") else np.zeros(length, dtype=np.int64),
    }
    if objective == "clm":
        one |= {"positions": np.arange(length - 1), "labels": one["ids"][1:]}
    if objective == "rtd":
        one["labels"][0] = one["ids"][one["positions"][0]]  # kept, the others are masked
        one["ids"][one["positions"][1:]] = MASK
    one["uniforms"] = generator.random(len(one["labels"])) if objective == "rtd" else np.zeros(len(one["labels"]))
    return one


def make_rows(step, *, token_rows=5, pair_rows=3, objectives=("tlm", "mlm")):
    """Rows of sequences of one global batch; the same for everyone who asks."""
    generator = keyed_generator("made-up rows", step)
    rows = []
    for row in range(token_rows):
        objective = objectives[row % len(objectives)]
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


HELD_OUT = make_rows("held out", token_rows=5, pair_rows=0)


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
        token_type_ids=joined([one["types"] for one in sequences]),
        language_ids=joined([np.full(len(one["ids"]), one["language"]) for one in sequences]),
        cu_seqlens=torch.from_numpy(starts.astype(np.int32)),
        predict_positions=joined([one["positions"] + start for one, start in zip(sequences, starts, strict=False)]),
        labels=joined([one["labels"] for one in sequences]),
        prediction_objective=joined([np.full(len(one["labels"]), one["objective"]) for one in sequences]),
        sequence_objective=each("objective"),
        pair_key=each("key"),
        pair_index=each("index"),
        sequence_label=each("label"),
        row_id=each("row"),
        uniforms=torch.from_numpy(np.concatenate([np.zeros(0), *(one["uniforms"] for one in sequences)])),
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
    pieces, labels, judged, sides = [], [], [], {}
    for one in (one for row in rows for one in row):
        name = CODES[one["objective"]]
        options = OBJECTIVES[name]
        batch = pack([[one]])
        if name == "rtd":
            shown, losses, replaced = reference_generator(model, batch)
            pieces += [options.loss_weight * loss for loss in losses]
            scores = model.discriminator_head(model.encode(batch, model.token_tables(), input_ids=shown))
            right = torch.where(replaced, torch.sigmoid(scores), torch.sigmoid(-scores))
            judged += [-options.loss_weight * options.discriminator_weight * loss for loss in right.log()]
            continue
        hidden = model.encode(batch, model.token_tables())
        if name == "contrastive":
            inside = hidden[1:-1] if len(hidden) > 2 else hidden
            sides.setdefault(one["index"], []).append((inside.float().mean(0), one["key"]))
            continue
        logits = model.logits(hidden[batch.predict_positions])
        pieces += [options.loss_weight * loss for loss in F.cross_entropy(logits.float(), batch.labels, reduction="none")]
        if one["label"] >= 0:
            classes = model.sentence_head(hidden[:1]).log_softmax(1)
            labels.append(-options.loss_weight * options.sentence_weight * classes[0, one["label"]])
    means = [torch.stack(losses).mean() for losses in (pieces, labels, judged) if losses]
    total = torch.stack(means).sum() if means else 0.0
    return total + reference_pairs(sides) if sides else total


def reference_generator(model, batch):
    """One RTD sequence as its generator fills it in: ids [T], losses [P], whether each token was replaced [T]."""
    embedded = model.encoder.embeddings(batch.input_ids, batch.position_ids, batch.token_type_ids, batch.language_ids)
    read = model.generator(embedded, batch.position_ids, batch.cu_seqlens, batch.predict_positions)
    logits = F.linear(read, model.encoder.embeddings.tokens.weight, model.generator.lm_head.bias)
    shares = logits.detach().double().softmax(1).cumsum(1)
    shown, replaced = batch.input_ids.clone(), torch.zeros(batch.tokens, dtype=torch.bool)
    for row, position in enumerate(batch.predict_positions.tolist()):
        shown[position] = int((shares[row] <= batch.uniforms[row]).sum())
        replaced[position] = bool(shown[position] != batch.labels[row])
    return shown, F.cross_entropy(logits, batch.labels, reduction="none"), replaced


def reference_pairs(sides):
    losses, temperature = [], TRAINING.contrastive.temperature
    for (source, key), (target, _) in sides.values():
        others = [pair for pair in sides.values() if pair[0][1] != key]
        forth = [torch.cosine_similarity(source, pair[1][0], dim=0) for pair in others]
        back = [torch.cosine_similarity(pair[0][0], target, dim=0) for pair in others]
        own = torch.cosine_similarity(source, target, dim=0)
        for scores in (forth, back):
            losses.append(torch.logsumexp(torch.stack([own, *scores]) / temperature, 0) - own / temperature)
    return OBJECTIVES["contrastive"].loss_weight * torch.stack(losses).mean()
