from types import SimpleNamespace

import pytest
from made_up_run import RECIPE

import xlm.training.drawn as drawn
from xlm.config.recipe import Recipe

REMOTE = {"url": "memory://shards"}


@pytest.mark.parametrize(("storage", "workers", "fetched"), [(None, 0, False), (REMOTE, 0, True), (REMOTE, 2, False)])
def test_what_is_fetched_is_logged_by_the_process_that_fetches(monkeypatch, storage, workers, fetched):
    monkeypatch.setattr(drawn, "RunningLedger", lambda plan: SimpleNamespace(metrics=lambda step, seen: {"epochs/en": step / 10}))
    training = {**RECIPE["training"], "loader": {"workers": workers}}
    recipe = Recipe.model_validate({**RECIPE, "training": training, "shards": {"storage": storage}})
    statistics = SimpleNamespace(metrics=lambda: {"blocks_fetched": 3.0})
    inputs = SimpleNamespace(plan=None, store=SimpleNamespace(statistics=lambda: statistics))
    metrics = drawn.drawn_metrics(recipe, inputs)
    assert metrics(5, None) == {"epochs/en": 0.5} | ({"blocks_fetched": 3.0} if fetched else {})
