import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.errors import UserError
from xlm.training.fragments import STATE, Fragment, StateHeader, StoredState, expected_files, state_file, tensor_name
from xlm.training.tensor_file import TensorPlace, write_tensor_file

SHAPES = {"table": (4, 3), "bias": (5,)}
VALUES = {name: np.arange(np.prod(shape), dtype=np.float32) + 100 * len(name) for name, shape in SHAPES.items()}
STEP = {"step": ("F32", 3.0)}


def write_rank(folder, rank, world_size, fragments, *, values=VALUES, **changes):
    parts = {tensor_name(key, one.name): values[one.name][one.start : one.stop] for one in fragments for key in one.moments}
    header = StateHeader(tuple(fragments), {"global_steps": 3}, None, 2, rank, world_size)
    text = json.dumps(json.loads(header.to_json()) | changes)
    places = {name: TensorPlace("F32", part.shape) for name, part in parts.items()}
    write_tensor_file(folder / state_file(rank, world_size), places, (part.tobytes() for part in parts.values()), {STATE: text})


def run(name, start, stop, **changes):
    return replace(Fragment(name, start, stop, SHAPES[name], ("exp_avg",), STEP), **changes)


def two_ranks(folder, first=None, second=None):
    write_rank(folder, 0, 2, first or [run("table", 0, 7), run("bias", 2, 5)])
    write_rank(folder, 1, 2, second or [run("table", 7, 12), run("bias", 0, 2)])


@settings(deadline=None, max_examples=30)
@given(cuts=st.lists(st.integers(1, 11), max_size=5, unique=True), span=st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_any_run_of_a_parameter_however_it_was_cut(tmp_path_factory, cuts, span):
    folder = tmp_path_factory.mktemp("cut")
    bounds = [0, *sorted(cuts), 12]
    for rank, (start, stop) in enumerate(pairwise(bounds)):
        # The ranks' order in memory is nobody's business.
        write_rank(folder, len(bounds) - 2 - rank, len(bounds) - 1, [run("table", start, stop)])
    table = StoredState.open(folder).parameters["table"]
    start, stop = sorted(span)
    assert np.array_equal(np.frombuffer(table.read("exp_avg", start, stop), np.float32), VALUES["table"][start:stop])
    assert b"".join(table.chunks("exp_avg")) == VALUES["table"].tobytes()
    assert (table.elements, table.moments, table.scalars, table.dtype("exp_avg")) == (12, ("exp_avg",), STEP, "F32")


def test_what_stands_in_a_header_comes_back(tmp_path):
    two_ranks(tmp_path)
    stored = StoredState.open(tmp_path)
    assert set(stored.parameters) == set(SHAPES)
    assert (stored.world_size, stored.stage, stored.counters, stored.loss_scale) == (2, 2, {"global_steps": 3}, None)
    assert [path.name for path in sorted(tmp_path.iterdir())] == expected_files(2)


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        (None, [run("table", 8, 12), run("bias", 0, 2)], "numbers 7 to 8 of the optimizer state of 'table' are missing"),
        (None, [run("table", 7, 11), run("bias", 0, 2)], "numbers 11 to 12 of the optimizer state of 'table' are missing"),
        (None, [run("table", 5, 12), run("bias", 0, 2)], "numbers 5 to 7 of the optimizer state of 'table' are there twice"),
        (None, [run("table", 7, 12, scalars={"step": ("F32", 4.0)}), run("bias", 0, 2)], "ranks do not agree on .* 'table'"),
        (None, [run("table", 7, 12, moments=()), run("bias", 0, 2)], "ranks do not agree on .* 'table'"),
    ],
)
def test_pieces_that_do_not_fit_together_are_a_sentence(tmp_path, first, second, sentence):
    two_ranks(tmp_path, first, second)
    with pytest.raises(UserError, match=sentence):
        StoredState.open(tmp_path)


def missing_rank(folder):
    (folder / state_file(1, 2)).unlink()


def one_too_many(folder):
    write_rank(folder, 0, 1, [run("table", 0, 12)])


def swapped(folder):
    (folder / state_file(1, 2)).write_bytes((folder / state_file(0, 2)).read_bytes())


def of_the_future(folder):
    write_rank(folder, 1, 2, [run("table", 7, 12), run("bias", 0, 2)], format=9)


def without_header(folder):
    write_tensor_file(folder / state_file(1, 2), {}, [], {})


def old_form(folder):
    for path in folder.iterdir():
        path.unlink()
    (folder / "mp_rank_00_model_states.pt").write_bytes(b"pickled")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (missing_rank, "rank-00001-of-00002.safetensors: this file of a checkpoint is missing"),
        (one_too_many, "this file is not one of the"),
        (swapped, "says that it is of another rank"),
        (of_the_future, "is of format 9, this version reads 1"),
        (without_header, "this optimizer state is damaged"),
        (old_form, "kept DeepSpeed's own files; its weights can be used with start_from"),
    ],
)
def test_files_that_are_not_those_of_all_ranks_are_a_sentence(tmp_path, spoil, sentence):
    two_ranks(tmp_path)
    spoil(tmp_path)
    with pytest.raises(UserError, match=sentence):
        StoredState.open(tmp_path)
