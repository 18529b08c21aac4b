"""What choices of pretraining may go by: the probe on dev templates, and retrieval on dev pools, of the dev languages alone.

No test sentence is read, so that none can be looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xlm.config.recipe import Recipe
from xlm.errors import UserError
from xlm.evaluation.intent_scores import dev_accuracy
from xlm.evaluation.intent_systems import PROBE, SWITCHED_PROBE, encoder_reader, probe_system
from xlm.evaluation.intent_task import load_intent_task
from xlm.evaluation.percent import rounded
from xlm.evaluation.readout import chosen_readout, load_translations
from xlm.evaluation.retrieval_scores import embed_pools, load_pools
from xlm.evaluation.switched_training import load_switched_training, with_copies
from xlm.evaluation.trained_encoder import load_trained_encoder
from xlm.runs.folder import RunFolder
from xlm.tasks.metrics import top1_retrieval

RETRIEVAL = "retrieval"


def dev_scores(recipe: Recipe, run: RunFolder) -> dict[str, dict[str, float]]:
    """Return accuracy in percent by system and dev language, and their means; also retrieval, top 1 of the dev pools."""
    if recipe.tasks is None or not recipe.evaluation.dev_languages:
        raise UserError("this recipe names no evaluation.dev_languages, by which choices could be made; name some.")
    evaluation, languages = recipe.evaluation, recipe.evaluation.dev_languages
    trained = load_trained_encoder(recipe, run)
    readout = chosen_readout(evaluation, trained.config.layers)
    translations = load_translations(run.corpus, recipe.tasks.languages, evaluation.whitening, recipe.tasks.seed)
    reader = encoder_reader(trained, trained.encoder, readout, translations)
    task = load_intent_task(run.tasks, (), evaluation.seeds, dev_languages=languages)
    tasks, features = {PROBE: task}, {PROBE: reader.features(task)}
    if evaluation.code_switched_training is not None:
        switched = load_switched_training(recipe, evaluation.code_switched_training, run, task)
        tasks[SWITCHED_PROBE] = with_copies(task, switched.copies)
        features[SWITCHED_PROBE] = reader.with_copies(features[PROBE], switched.copies)
    penalties = evaluation.probe_penalties
    scores = dev_accuracy([probe_system(name, own, [features[name]] * len(own.seeds), reader, penalties)[0] for name, own in tasks.items()])

    def embed(texts: Sequence[str], language: str) -> Any:  # noqa: ANN401 (an array)
        return trained.encode(texts, language, readout.layers[-1:])

    found_pools = {language: pool for language, pool in load_pools(run.tasks, languages, dev=True).items() if len(pool)}
    pools = embed_pools(found_pools, embed)
    if pools:
        found = {language: rounded(100.0 * top1_retrieval(own.sources[0], own.targets[0]).mean) for language, own in pools.items()}
        scores[RETRIEVAL] = {**found, "mean": rounded(np.mean(list(found.values())))}
    return scores
