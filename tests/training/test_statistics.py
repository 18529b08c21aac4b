import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from xlm.batching.packed_batch import OBJECTIVES
from xlm.training.statistics import LossStatistics

LANGUAGES = ("en", "zh-Hans")
CPU = torch.device("cpu")
ENTRIES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.floats(0, 20, width=32)), min_size=1, max_size=30)


def statistics():
    return LossStatistics(LANGUAGES, CPU)


def add(to, entries, step_loss=1.0, applied=True):
    objective, language, losses = zip(*entries, strict=True)
    to.add(torch.tensor(objective), torch.tensor(language), torch.tensor(losses))
    to.add_step_loss(torch.tensor(step_loss))
    to.commit_step(applied)


@given(st.lists(ENTRIES, min_size=1, max_size=4))
def test_means_are_the_means_of_what_was_added(steps):
    found = statistics()
    for entries in steps:
        add(found, entries)
    means = found.take_window()
    cells = {}
    for objective, language, loss in (entry for entries in steps for entry in entries):
        cells.setdefault((OBJECTIVES[objective], LANGUAGES[language]), []).append(loss)
    assert means.counts == {cell: len(losses) for cell, losses in cells.items()}
    for cell, losses in cells.items():
        assert means.languages[cell] == pytest.approx(sum(losses) / len(losses))
    for objective in {cell[0] for cell in cells}:
        every = [loss for cell, losses in cells.items() if cell[0] == objective for loss in losses]
        assert means.objectives[objective] == pytest.approx(sum(every) / len(every))
    assert means.steps == len(steps)


def test_a_step_that_was_not_applied_leaves_no_trace():
    found = statistics()
    add(found, [(0, 0, 3.0)], step_loss=3.0)
    add(found, [(0, 0, float("nan"))], step_loss=float("nan"), applied=False)
    means = found.take_window()
    assert means.loss == 3.0
    assert means.counts == {("mlm", "en"): 1}
    assert found.take_window().loss is None


def test_open_sums_survive_a_checkpoint_exactly():
    found, again = statistics(), statistics()
    add(found, [(0, 0, 1 / 3), (2, 1, 0.1)], step_loss=1 / 7)
    found.add_tokens(torch.tensor([0, 1, 1]))
    again.load(json.loads(json.dumps(found.state())))
    for side in (found, again):
        add(side, [(0, 0, 0.7)], step_loss=0.3)
    assert found.take_window() == again.take_window()
    assert found.tokens_seen() == again.tokens_seen() == {"en": 1, "zh-Hans": 2}


def test_tokens_count_since_the_start_and_not_by_window():
    found = statistics()
    found.add_tokens(torch.tensor([0, 0]))
    found.take_window()
    found.add_tokens(torch.tensor([0, 1]))
    assert found.tokens_seen() == {"en": 3, "zh-Hans": 1}


def test_thousands_of_predictions_in_thousands_of_languages():
    languages = tuple(f"l{number}" for number in range(1833))
    found = LossStatistics(languages, CPU)
    draw = torch.Generator().manual_seed(0)
    objective, language = torch.randint(0, 3, (5000,), generator=draw), torch.randint(0, 1833, (5000,), generator=draw)
    losses = torch.rand(5000, generator=draw)
    found.add(objective, language, losses)
    found.commit_step(True)
    means = found.take_window()
    cells = objective * 1833 + language
    counts = torch.bincount(cells, minlength=3 * 1833)
    sums = torch.bincount(cells, weights=losses.double(), minlength=3 * 1833)
    for cell in torch.nonzero(counts).flatten().tolist():
        name = (OBJECTIVES[cell // 1833], languages[cell % 1833])
        assert means.counts[name] == int(counts[cell])
        assert means.languages[name] == pytest.approx(float(sums[cell] / counts[cell]))
    assert sum(means.counts.values()) == 5000
