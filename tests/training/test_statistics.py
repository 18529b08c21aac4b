import json
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_steps import LANGUAGES as THREE
from made_up_steps import deal, make_rows, pack

from xlm.batching.packed_batch import OBJECTIVES
from xlm.errors import UserError
from xlm.mixing.seen import Seen
from xlm.training.statistics import MEASURES, LossStatistics

LANGUAGES, PHASES = ("en", "zh-Hans"), ("short", "long")
CPU = torch.device("cpu")
CELLS = st.tuples(st.integers(0, len(MEASURES) - 1), st.integers(0, 1), st.floats(0, 20, width=32), st.booleans())
ENTRIES = st.lists(CELLS, min_size=1, max_size=30)


def statistics():
    return LossStatistics(PHASES, LANGUAGES, CPU)


def counted(parts):
    """What is seen after micro-batches given as (phase, batch)."""
    found = LossStatistics(PHASES, THREE, CPU)
    for phase, batch in parts:
        found.add_batch(phase, batch)
    return found


def by_hand(parts):
    """The same, counted one sequence at a time from rows given as (phase, rows)."""
    tokens, rows = Counter(), Counter()
    for phase, each in parts:
        for row in each:
            objective = OBJECTIVES[row[0]["objective"]]
            rows[PHASES[phase], objective] += 1
            for one in row:
                tokens[PHASES[phase], objective, THREE[one["language"]]] += len(one["ids"])
    return Seen(tokens, rows)


def add(to, entries, step_loss=1.0, applied=True):
    measure, language, losses, *correct = (torch.tensor(column) for column in zip(*entries, strict=True))
    to.add(measure, language, losses, *correct)
    to.add_step_loss(torch.tensor(step_loss))
    to.commit_step(applied)


@given(st.lists(ENTRIES, min_size=1, max_size=4))
@settings(deadline=None)
def test_means_are_the_means_of_what_was_added(steps):
    found = statistics()
    for entries in steps:
        add(found, entries)
    means = found.take_window()
    cells = {}
    for measure, language, loss, _ in (entry for entries in steps for entry in entries):
        cells.setdefault((MEASURES[measure], LANGUAGES[language]), []).append(loss)
    assert means.counts == {cell: len(losses) for cell, losses in cells.items()}
    for cell, losses in cells.items():
        assert means.languages[cell] == pytest.approx(sum(losses) / len(losses))
    for objective in {cell[0] for cell in cells}:
        every = [loss for cell, losses in cells.items() if cell[0] == objective for loss in losses]
        assert means.objectives[objective] == pytest.approx(sum(every) / len(every))
    hits = {}
    for measure, _, _, correct in (entry for entries in steps for entry in entries):
        hits.setdefault(MEASURES[measure], []).append(correct)
    hits.pop("contrastive", None)
    assert means.accuracies == pytest.approx({measure: sum(found) / len(found) for measure, found in hits.items()})
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
    again.load(json.loads(json.dumps(found.state())))
    for side in (found, again):
        add(side, [(0, 0, 0.7)], step_loss=0.3)
    assert found.take_window() == again.take_window()


def test_rows_and_tokens_are_counted_by_phase_objective_and_language():
    steps = [(0, make_rows(0)), (0, make_rows(1)), (1, make_rows(2))]
    found = counted((phase, pack(rows)) for phase, rows in steps)
    assert found.seen() == by_hand(steps)
    assert sum(found.seen().rows_by_objective().values()) == 24
    found.take_window()  # what was seen is not of a window
    found.commit_step(False)  # and a step that was not applied was seen all the same
    found.add_batch(1, pack([]))
    assert found.seen() == by_hand(steps)


@pytest.mark.parametrize(("world_size", "micro_steps"), [(1, 1), (1, 3), (2, 2), (3, 1)])
def test_counts_are_the_same_however_a_batch_is_split(world_size, micro_steps):
    ranks = [counted((0, batch) for batch in deal(make_rows(0), world_size, micro_steps, rank)) for rank in range(world_size)]
    together = LossStatistics(PHASES, THREE, CPU)
    sums = [sum(cell) for cell in zip(*(rank.state()["seen"] for rank in ranks), strict=True)]
    together.load({"window": ranks[0].state()["window"], "seen": sums})
    assert together.seen() == by_hand([(0, make_rows(0))])


def test_counts_survive_a_checkpoint_exactly_beyond_32_bits():
    found, again = counted([(1, pack(make_rows(0)))]), LossStatistics(PHASES, THREE, CPU)
    found._seen *= 2.0**45
    again.load(json.loads(json.dumps(found.state())))
    for side in (found, again):
        side.add_batch(1, pack(make_rows(0)))
    expected = by_hand([(1, make_rows(0))])
    assert again.seen() == found.seen()
    assert found.seen().rows == {cell: count * (2**45 + 1) for cell, count in expected.rows.items()}
    assert found.seen().tokens == {cell: count * (2**45 + 1) for cell, count in expected.tokens.items()}


def test_sums_of_another_shape_are_a_sentence():
    found = statistics()
    for state in (LossStatistics(("short",), LANGUAGES, CPU).state(), {"window": found.state()["window"], "tokens": [1.0, 2.0]}):
        with pytest.raises(UserError, match="another version of xlm"):
            found.load(state)


def test_thousands_of_predictions_in_thousands_of_languages():
    languages = tuple(f"l{number}" for number in range(1833))
    found = LossStatistics(PHASES, languages, CPU)
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
