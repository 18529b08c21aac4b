"""A sink that fails, loses answers and forgets nothing, against the list of what was logged."""

import contextlib
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.tracking.delivery import METRICS_A_CALL, Delivery, Entry, RejectedError, entries_of, entries_of_record
from xlm.tracking.json_lines import JsonLines, metrics_of


class Server:
    """MLflow's table: a row with the same key is the same row; a call is in it whole or not at all."""

    def __init__(self, failures=()):
        self.rows = set()
        self.failures = list(failures)
        self.calls = 0

    def send(self, metrics):
        assert 0 < len(metrics) <= METRICS_A_CALL
        self.calls += 1
        failure = self.failures.pop() if self.failures else "none"
        if failure == "refused":
            raise ConnectionError
        self.rows.update(metrics)
        if failure == "answer lost":
            raise TimeoutError

    def steps_of(self, name):
        return {step for found, _, _, step in self.rows if found == name}

    def curve(self):
        return sorted((step, name, value) for name, value, _, step in self.rows)


def try_until_done(delivery, server):
    for _ in range(1000):
        try:
            delivery.deliver(server)
            return
        except OSError:
            continue
    raise AssertionError("never delivered")


def record(step, names=3, time=None):
    return {"step": step, "time": float(step if time is None else time), **{f"loss/{number}": step + number / 7 for number in range(names)}}


def curve_of(records):
    return sorted((one["step"], name, value) for one in records for name, value in metrics_of(one).items())


FAILURES = st.lists(st.sampled_from(["none", "refused", "answer lost"]), max_size=30)


@settings(deadline=None, max_examples=60)
@given(
    failures=FAILURES,
    sizes=st.lists(st.integers(1, 2500), min_size=1, max_size=8),
    killed_at=st.integers(0, 8),
    back_to=st.integers(0, 8),
    kept=st.sampled_from([1, 3000, 10**6]),
)
def test_every_value_arrives_exactly_once(tmp_path_factory, failures, sizes, killed_at, back_to, kept):
    """Logged, killed at a record, taken back to an earlier one, logged again: with any failures on the way."""
    lines = JsonLines(tmp_path_factory.mktemp("run") / "metrics.jsonl")
    server = Server(failures)
    records = [record(step, size) for step, size in enumerate(sizes, 1)]
    delivery = Delivery(lines, kept)
    for one in records[:killed_at]:
        lines.append(one)
        delivery.add(entries_of_record(one))
        with contextlib.suppress(OSError):
            delivery.deliver(server)
    back_to = min(back_to, killed_at, len(records))
    lines.cut_after(back_to)
    delivery = Delivery(lines, kept)
    delivery.resume()
    for one in records[back_to:]:
        again = {**one, "time": one["time"] + 1000}  # the second time around it is later
        lines.append(again)
        delivery.add(entries_of_record(again))
    try_until_done(delivery, server)
    assert server.curve() == curve_of(records)
    assert delivery.is_complete
    assert delivery.dropped == delivery.unsent == 0


def test_memory_is_bounded_and_what_no_file_has_is_counted(tmp_path):
    lines = JsonLines(tmp_path / "metrics.jsonl")
    delivery, server = Delivery(lines, kept=100), Server()
    records = [record(step, 10) for step in range(1, 51)]
    for one in records:
        lines.append(one)
        delivery.add(entries_of_record(one))
        delivery.add(entries_of(one["step"], 5, {"system/a": 1.0, "system/b": 2.0}, in_file=False))
        assert delivery.unsent <= 100
    delivery.deliver(server)
    assert [row for row in server.curve() if not row[1].startswith("system")] == curve_of(records)
    assert delivery.dropped == 2 * 50 - sum(row[1].startswith("system") for row in server.curve()) > 0


def test_calls_are_filled():
    delivery, server = Delivery(), Server()
    delivery.add(Entry(step, 0, tuple((f"m{number}", 0.0) for number in range(40)), False) for step in range(100))
    delivery.deliver(server)
    assert len(server.rows) == 4000
    assert server.calls == 4


def test_what_is_refused_for_good_is_counted_and_does_not_stand_in_the_way():
    class Refusing(Server):
        def send(self, metrics):
            if any(name == "bad" for name, *_ in metrics):
                raise RejectedError
            super().send(metrics)

    delivery, server = Delivery(), Refusing()
    delivery.add(entries_of(1, 0, {"bad": 1.0}, in_file=False))
    delivery.deliver(server)
    delivery.add(entries_of(2, 0, {"good": 1.0}, in_file=False))
    delivery.deliver(server)
    assert server.curve() == [(2, "good", 1.0)]
    assert delivery.dropped == 1
    delivery.add(entries_of(3, 0, {"a": 1.0, "bad": 2.0, "b": 3.0, "c": 4.0}, in_file=False))
    delivery.deliver(server)
    assert server.curve() == [(2, "good", 1.0), (3, "a", 1.0), (3, "b", 3.0), (3, "c", 4.0)]
    assert delivery.dropped == 2


def test_a_gap_below_the_highest_step_is_filled(tmp_path):
    lines, server = JsonLines(tmp_path / "metrics.jsonl"), Server()
    records = [record(step) for step in range(1, 21)]
    for one in records:
        lines.append(one)
        if random.Random(one["step"]).random() < 0.5 or one["step"] == 20:
            server.rows.update(row for entry in entries_of_record(one) for row in entry.rows())
    assert len(server.rows) < 60
    delivery = Delivery(lines)
    delivery.resume()
    delivery.deliver(server)
    assert server.curve() == curve_of(records)
