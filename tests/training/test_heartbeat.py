import time

import pytest

import xlm.training.heartbeat as heartbeat
from xlm.training.heartbeat import Heartbeat
from xlm.training.meeting import Member

MEMBERS = [Member(rank, f"host{rank}", "-", 1) for rank in range(3)]


class Signs:
    """A store of signs of life without a network."""

    def __init__(self):
        self.written, self.code, self.knows = {0: "0", 1: "0", 2: "0"}, None, False

    def again(self):
        return self

    def beat(self, number, place):
        self.written[0] = f"{number} {place}"

    def beats(self, ranks):
        return {rank: self.written[rank] for rank in ranks}

    def said(self):
        return self.code

    def know(self):
        self.knows = True


@pytest.fixture
def beating(monkeypatch):
    monkeypatch.setattr(heartbeat, "BEAT_S", 0.05)
    started = []

    def start(rank, limit_s=60.0):
        signs, ended = Signs(), []
        started.append(Heartbeat(signs, MEMBERS, rank, limit_s, lambda: ended.append(rank), ended.append))
        started[-1].start()
        return started[-1], signs, ended

    yield start
    for one in started:
        one.stop()


def wait_until(condition):
    until = time.monotonic() + 20
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def test_rank_0_sees_whose_signs_stopped(beating):
    heart, signs, _ = beating(0)
    number = 0

    def only_rank_2_is_silent():
        nonlocal number
        number += 1
        signs.written[1] = str(number)  # lives on
        return heart.silent(1.0) == [2]

    assert wait_until(only_rank_2_is_silent)
    assert heart.silent_s(2) > 1.0 > heart.silent_s(1)
    assert int(signs.written[0].split()[0]) > 1


def test_others_watch_rank_0_and_hear_that_it_has_spoken(beating):
    heart, signs, _ = beating(1)
    assert heart.said is None
    signs.code = 75
    assert wait_until(lambda: heart.said == 75)
    assert wait_until(lambda: signs.knows)
    # Rank 1 wrote its signs in rank 0's place here, so rank 0 lives.
    assert heart.silent(1.0) == []


def test_silence_that_lasts_too_long_is_reported_once(beating):
    _, _, ended = beating(0, limit_s=0.3)
    assert wait_until(lambda: ended == [0])
    time.sleep(0.3)
    assert ended == [0]


def test_a_rank_that_is_held_long_after_rank_0_has_spoken_ends_with_its_code(beating, monkeypatch):
    monkeypatch.setattr(heartbeat, "HEED_S", 0.3)
    _, signs, ended = beating(1)
    signs.code = 75
    assert wait_until(lambda: ended == [75])
