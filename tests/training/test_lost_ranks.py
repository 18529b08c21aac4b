import os
import socket
import subprocess
import sys

import pytest

import xlm.training.lost_ranks as lost_ranks
from xlm.errors import UserError
from xlm.training.lost_ranks import FailedRankError, LostRankError, exit_code, explain, is_cut_off, long_silence, named
from xlm.training.meeting import Ending, Member

# What gloo 2.13 raises, as plain RuntimeErrors.
CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.77.0.3]:704. This is typically"
WAITED = "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 30000ms for recv operation to complete"
ALDER, BIRCH, CEDAR = (Member(rank, host, f"10.77.0.{rank + 1}", 1) for rank, host in enumerate(("alder", "birch", "cedar")))


class Heard:
    """A meeting and a heartbeat: what others said, and since when they are silent."""

    def __init__(self, endings=None, silent=None, places=None):
        self._endings, self._silent, self._places = endings or {}, silent or {}, places or {}

    def endings(self, ranks):
        return {rank: self._endings[rank] for rank in ranks if rank in self._endings}

    def place(self, rank):
        return self._places.get(rank, "waiting")

    def silent_s(self, rank):
        return self._silent.get(rank, 0.5)

    def silent(self, longer_than_s=4.0):
        return [rank for rank in (1, 2) if self.silent_s(rank) > longer_than_s]


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setattr(lost_ranks, "LOOK_S", 0.2)

    def tell(error, heard, members=(ALDER, BIRCH, CEDAR)):
        return explain(RuntimeError(error), heard, heard, members, 30)

    return tell


@pytest.mark.parametrize("text", [CLOSED, WAITED, "NCCL error in: ncclRemoteError", "Connection reset by peer", "Broken pipe"])
def test_what_a_broken_group_raises_is_told_from_what_this_rank_did_wrong(text):
    assert is_cut_off(RuntimeError(text))
    assert exit_code(RuntimeError(text)) == 75
    assert not is_cut_off(UserError(text))
    assert not is_cut_off(ValueError(text))


def test_a_bug_and_a_mistake_are_not_to_be_started_again():
    assert not is_cut_off(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert exit_code(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) == 1
    assert exit_code(UserError("wrong")) == 2
    assert exit_code(FailedRankError("a bug")) == 1


def test_a_rank_that_fell_silent_is_named_and_its_neighbours_are_not(told):
    # cedar is gone; birch lost its connection to it, said so, and left.
    error = told(CLOSED, Heard(endings={1: Ending("cut off", "-", 75, "birch")}, silent={1: 9.0, 2: 5.0}))
    assert isinstance(error, LostRankError)
    assert str(error).startswith("cedar (rank 2) ended without a word: killed (perhaps for memory), or the host went down.")


def test_ranks_of_a_host_are_named_together_and_a_network_is_told_from_a_death(told):
    second = Member(2, "birch", "10.77.0.2", 2)
    # The second has not been silent for long enough, but nearly.
    error = told(WAITED, Heard(silent={1: 31.0, 2: 3.5}), (ALDER, BIRCH, second))
    assert str(error).startswith("no sign of birch (ranks 1 and 2) for 31 s: the host is down or stopped, or the network to it is cut.")


def test_a_dead_process_of_this_host_is_known_at_once(told):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    here = socket.gethostname()
    members = (Member(0, here, "-", os.getpid()), Member(1, here, "-", child.pid), Member(2, here, "-", os.getpid()))
    assert str(told(CLOSED, Heard(), members)).startswith(f"{here} (rank 1) ended without a word")


def test_last_words_of_another_rank_are_passed_on(told):
    error = told(CLOSED, Heard(endings={1: Ending("user", "no space left.", 2, "birch")}, silent={1: 9.0}))
    assert (type(error), str(error)) == (UserError, "birch (rank 1): no space left.")
    error = told(CLOSED, Heard(endings={2: Ending("bug", "KeyError: 'x'", 1, "cedar")}))
    assert isinstance(error, FailedRankError)
    assert "cedar (rank 2) ended with an error, its traceback is in what it printed: KeyError: 'x'" in str(error)


def test_a_connection_that_broke_between_ranks_that_live(told):
    assert str(told(CLOSED, Heard())).startswith("the connection to cedar (rank 2) broke, though all ranks are alive ([/pytorch")
    assert "longer than training.process_group_timeout_s (30 s), though all are alive; one is stuck" in str(told(WAITED, Heard()))


def test_who_waited_for_nobody_is_named_with_its_place_in_the_code(told):
    error = told(WAITED, Heard(places={1: "xlm/shards/reader.py:88 (read)"}))
    assert "though all are alive; birch (rank 1) was at xlm/shards/reader.py:88 (read) meanwhile, stuck or much slower: raise" in str(error)
    assert "cedar" not in str(error)


def test_hosts_are_listed_with_their_ranks():
    assert named([ALDER, BIRCH, Member(2, "birch", "-", 1)]) == "alder (rank 0) and birch (ranks 1 and 2)"


def test_a_silence_longer_than_the_timeout_has_its_reason():
    told = str(long_silence([BIRCH, CEDAR], 30.0))
    assert told.startswith("no sign of birch (rank 1) and cedar (rank 2) for")
    assert "for more than 30 s (training.process_group_timeout_s): the host is down or stopped, or the network to it is cut." in told
