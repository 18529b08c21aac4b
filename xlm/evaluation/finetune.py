"""Full fine-tuning on English: the whole encoder learns the task, and may forget the other languages.

AdamW (Loshchilov & Hutter 2019) with a linear schedule after a warm-up over the first tenth, as in BERT's
and XTREME's recipes. Token embeddings stay frozen where the recipe says so: English sentences only touch
English rows, and moving those away from their translations is what transfer dies of. Learning rate and
epoch are those with the best accuracy on English dev; no other language is looked at.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xlm.evaluation.encode import TOKENS_PER_BATCH, autocast
from xlm.evaluation.packing import PackedTexts, TokenisedTexts, batches_by_length, pack
from xlm.evaluation.probe import Labels
from xlm.evaluation.words import word_rows
from xlm.model.dropout import Dropout
from xlm.model.encoder import Encoder
from xlm.model.pooling import mean_pool
from xlm.runs.cores import usable_cores
from xlm.seeding import keyed_generator

WARMUP_SHARE = 0.1
WEIGHT_DECAY = 0.01
GRADIENT_CLIPPING = 1.0
HEAD_DROPOUT = 0.1
COLLAPSE_SHARE = 0.95


@dataclass(frozen=True)
class FinetuneSettings:
    """What the recipe's evaluation section says about fine-tuning, for one learning rate."""

    learning_rate: float
    epochs: int
    batch_size: int
    freeze_token_embeddings: bool
    precision: str = "fp32"


@dataclass(frozen=True)
class LabelledTexts:
    """Tokenised sentences and their labels [n]; ``versions`` of the same sentences, to be trained on in turn."""

    texts: TokenisedTexts
    labels: Labels
    versions: tuple[TokenisedTexts, ...] = ()

    def __len__(self) -> int:
        return len(self.texts.sequences)

    def batch(self, rows: NDArray[np.int64], epoch: int, language: int | None = None) -> PackedTexts:
        """Pack the sentences of ``rows`` in the version due in an epoch: every epoch mixes them, and each comes as often."""
        every = (self.texts, *self.versions)
        return pack([every[(row + epoch) % len(every)].sequences[row] for row in rows], language)

    def targets(self, rows: NDArray[np.int64]) -> Labels:
        """Return a label a sentence."""
        return self.labels[rows]

    def subset(self, rows: NDArray[np.int64]) -> LabelledTexts:
        """Return the sentences of ``rows``."""
        return LabelledTexts(self.texts.select(rows), self.labels[rows], tuple(version.select(rows) for version in self.versions))


@dataclass(frozen=True)
class LabelledWords:
    """Tokenised sentences and a label for each of their words."""

    texts: TokenisedTexts
    labels: tuple[Labels, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: NDArray[np.int64], epoch: int, language: int | None = None) -> PackedTexts:
        """Pack the sentences of ``rows``, the same in every epoch."""
        return self.texts.packed(rows, language)

    def targets(self, rows: NDArray[np.int64]) -> Labels:
        """Return a label a word."""
        return np.concatenate([self.labels[row] for row in rows])

    def subset(self, rows: NDArray[np.int64]) -> LabelledWords:
        """Return the sentences of ``rows``."""
        return LabelledWords(self.texts.select(rows), tuple(self.labels[row] for row in rows))


Labelled = TypeVar("Labelled", LabelledTexts, LabelledWords)


class Classifier(nn.Module):
    """An encoder and a linear layer over its final states: mean-pooled, or those of words where the batch has words."""

    def __init__(self, encoder: Encoder, label_count: int, seed: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.dropout = Dropout(HEAD_DROPOUT, encoder.dropout_key)
        self.head = nn.Linear(encoder.config.width, label_count, device="meta").to_empty(device="cpu")
        weights = keyed_generator("finetune-head", seed).normal(0.0, encoder.config.initializer_range, size=self.head.weight.shape)
        with torch.no_grad():
            self.head.weight.copy_(torch.from_numpy(weights))
            self.head.bias.zero_()

    def forward(self, batch: PackedTexts) -> Tensor:
        """Return logits [S, labels], or [words, labels], fp32."""
        hidden = self.encoder(batch.input_ids, batch.position_ids, batch.cu_seqlens, language_ids=batch.language_ids)
        pooled = (mean_pool(hidden, batch.cu_seqlens) if batch.word_positions is None else hidden[batch.word_positions]).float()
        with autocast("fp32"):
            logits: Tensor = self.head(self.dropout(pooled))
        return logits


@dataclass(frozen=True)
class Finetuned:
    """A fine-tuned classifier at its best epoch (counted from 1) on English dev."""

    classifier: Classifier
    epoch: int
    dev_accuracy: float


@dataclass(frozen=True)
class FinetuneChoice:
    """The learning rate that English dev chose, its mean accuracy there, and the epoch of each seed."""

    learning_rate: float
    dev_accuracy: float
    epochs: tuple[int, ...]


def finetune(
    encoder: Encoder,
    train: Labelled,
    dev: Labelled,
    *,
    label_count: int,
    settings: FinetuneSettings,
    seed: int,
    language: int | None = None,
    after_epoch: Callable[[], None] = lambda: None,
) -> Finetuned:
    """Train a copy of ``encoder`` on ``train`` and return it as it was after its best epoch on ``dev``; ties go to the later one."""
    classifier = Classifier(copy.deepcopy(encoder), label_count, seed)
    if settings.freeze_token_embeddings:
        classifier.encoder.embeddings.tokens.requires_grad_(False)
    optimizer = torch.optim.AdamW(_parameter_groups(classifier), lr=settings.learning_rate, fused=True)
    total_steps = settings.epochs * -(-len(train) // settings.batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: linear_schedule(step, total_steps))
    best: tuple[float, int, dict[str, Tensor]] | None = None
    for epoch in range(1, settings.epochs + 1):
        _train_epoch(classifier, train, optimizer, schedule, settings, seed, epoch, language)
        predicted = predict(classifier, dev.texts, language=language, precision=settings.precision)
        accuracy = float(np.mean(predicted == dev.targets(np.arange(len(dev)))))
        if best is None or accuracy >= best[0]:
            best = accuracy, epoch, {name: value.clone() for name, value in classifier.state_dict().items()}
        after_epoch()
    if best is None:
        raise ValueError("fine-tuning needs at least one epoch")
    classifier.load_state_dict(best[2])
    return Finetuned(classifier.eval(), best[1], best[0])


def _train_epoch(
    classifier: Classifier,
    train: LabelledTexts | LabelledWords,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LambdaLR,
    settings: FinetuneSettings,
    seed: int,
    epoch: int,
    language: int | None,
) -> None:
    """Go once over the training sentences, in an order keyed by seed and epoch."""
    parameters = [parameter for parameter in classifier.parameters() if parameter.requires_grad]
    order = keyed_generator("finetune-order", seed, epoch).permutation(len(train))
    classifier.train()
    for start in range(0, len(order), settings.batch_size):
        rows = order[start : start + settings.batch_size]
        classifier.encoder.dropout_key.set("finetune", seed, epoch, start)
        with autocast(settings.precision):
            logits = classifier(train.batch(rows, epoch, language))
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(train.targets(rows)))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, GRADIENT_CLIPPING)
        optimizer.step()
        schedule.step()


def choose_finetuned(
    encoder: Encoder,
    train: Labelled,
    dev: Labelled,
    subsets: Sequence[NDArray[np.int64]],
    seeds: Sequence[int],
    settings: Sequence[FinetuneSettings],
    *,
    label_count: int,
    language: int | None = None,
    after_epoch: Callable[[], None] = lambda: None,
) -> tuple[FinetuneChoice, list[Finetuned]]:
    """Fine-tune once a seed and learning rate; return the learning rate best on English dev, and its classifier of each seed.

    Seeds go side by side on one thread each: batches of a few hundred tokens keep no more of them busy.
    """
    best: tuple[FinetuneChoice, list[Finetuned]] | None = None
    lock, stopped = threading.Lock(), threading.Event()

    def epoch_done() -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        with lock:
            after_epoch()

    def run(setting: FinetuneSettings, rows: NDArray[np.int64], seed: int) -> Finetuned:
        torch.set_num_threads(1)  # of this thread, too
        return finetune(
            encoder,
            train.subset(rows),
            dev,
            label_count=label_count,
            settings=setting,
            seed=seed,
            language=language,
            after_epoch=epoch_done,
        )

    for setting in settings:
        with one_torch_thread(), ThreadPoolExecutor(max_workers=usable_cores()) as pool:
            try:
                runs = list(pool.map(partial(run, setting), subsets, seeds))
            except BaseException:
                stopped.set()  # the pool waits for its threads, which would train on to their end
                raise
        accuracy = float(np.mean([run.dev_accuracy for run in runs]))
        if best is None or accuracy > best[0].dev_accuracy:
            best = FinetuneChoice(setting.learning_rate, accuracy, tuple(run.epoch for run in runs)), runs
    if best is None:
        raise ValueError("no learning rate to choose from")
    return best


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let an operation of torch use one thread, and as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def predict(classifier: Classifier, texts: TokenisedTexts, *, language: int | None = None, precision: str = "fp32") -> Labels:
    """Return the most probable label of each text [n], or of each word, text after text."""
    ends = np.cumsum([1] * len(texts.sequences) if texts.words is None else [len(own) for own in texts.words])
    labels = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    classifier.eval()
    with torch.inference_mode(), autocast(precision):
        for indices in batches_by_length(texts.lengths, TOKENS_PER_BATCH):
            labels[word_rows(ends, indices)] = classifier(texts.packed(indices, language)).argmax(dim=1).numpy()
    return labels


def has_collapsed(predictions: Labels, share: float = COLLAPSE_SHARE) -> bool:
    """Return whether a classifier gives one label to more than ``share`` of the sentences: it learned nothing."""
    return bool(len(predictions)) and float(np.bincount(predictions).max()) > share * len(predictions)


def linear_schedule(step: int, total_steps: int) -> float:
    """Return the share of the peak learning rate at ``step`` (from 0): up over the first tenth, then down to 0."""
    warmup = max(1, round(WARMUP_SHARE * total_steps))
    if step < warmup:
        return (step + 1) / warmup
    return max(0.0, (total_steps - step) / max(1, total_steps - warmup))


def _parameter_groups(classifier: Classifier) -> list[dict[str, object]]:
    """Decay matrices only: norms and biases have no direction to shrink."""
    trained = [parameter for parameter in classifier.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trained if parameter.ndim >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [parameter for parameter in trained if parameter.ndim < 2], "weight_decay": 0.0},
    ]
