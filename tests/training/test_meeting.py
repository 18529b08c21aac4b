import socket

import pytest

from xlm.errors import UserError
from xlm.training.distributed import Process
from xlm.training.meeting import Meeting, numbers


@pytest.fixture
def two(monkeypatch):
    """The same store as two ranks of one host see it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    first = Meeting.open(Process(0, 2, 0, 2), 20)
    return first, Meeting.open(Process(1, 2, 1, 2), 20)


def test_all_come_and_hear_who_trains(two):
    first, second = two
    second.come({"code": "b"})
    first.come({"code": "a"})
    members = first.wait_for_all(20)
    assert [(member.rank, member.facts) for member in members] == [(0, {"code": "a"}), (1, {"code": "b"})]
    assert {member.host for member in members} == {socket.gethostname()}
    first.decide(members)
    assert [member.rank for member in second.decision(20)] == [0, 1]


def test_what_keeps_a_rank_away_is_raised_on_rank_0_in_its_words(two):
    first, second = two
    first.come({})
    second.end("user", "shards: this file does not exist.", 2)
    assert not second.is_heard()
    with pytest.raises(UserError, match=rf"^rank 1 on {socket.gethostname()}: shards: this file does not exist\.$"):
        first.wait_for_all(20)
    assert first.known([1]) == set()
    assert second.is_heard()
    assert first.known([1]) == {1}
    first.end("user", "that", 2)
    assert second.decision(20) is None
    assert second.said() == 2


def test_who_does_not_come_is_missed(two):
    first, _ = two
    first.come({})
    with pytest.raises(UserError, match=rf"^1 of 2 ranks did not come within 1 s: rank 1 .* while {socket.gethostname()} \(rank 0\) did"):
        first.wait_for_all(1)


def test_rank_0_that_decides_nothing_is_not_waited_for(two):
    with pytest.raises(UserError, match="rank 0 did not start training within 1 s"):
        two[1].decision(1)


def test_ports_that_are_taken_or_closed_are_sentences(two, monkeypatch):
    with pytest.raises(UserError, match=r"port \d+ of .* is taken by another program"):
        Meeting.open(Process(0, 2, 0, 2), 5)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # and does not listen
        monkeypatch.setenv("MASTER_PORT", str(probe.getsockname()[1]))
        with pytest.raises(UserError, match=r"cannot reach rank 0 at 127.0.0.1:\d+ \(Connection refused for 1 s\); check that rank 0 runs"):
            Meeting.open(Process(1, 2, 1, 2), 1)


def test_ranks_that_torchrun_starts_again_do_not_hear_the_last_ones(two, monkeypatch):
    first, second = two
    second.end("bug", "KeyError: 1", 1)
    assert first.endings([1])[1].told == "KeyError: 1"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert first.again().endings([1]) == {}


def test_signs_of_life_are_read_over_a_connection_of_its_own(two):
    first, second = two
    second.again().beat(3, "waiting")
    first.beat(0)
    assert first.beats([0, 1]) == {0: "0 ", 1: "3 waiting"}


def test_ranks_are_listed_in_words():
    assert numbers("rank", [3]) == "rank 3"
    assert numbers("rank", [4, 0, 3]) == "ranks 0, 3 and 4"
    assert numbers("rank", range(8)) == "ranks 0 to 7"
    assert numbers("rank", [9, 0, 1, 2, 12, 13]) == "ranks 0 to 2, 9, 12 and 13"
