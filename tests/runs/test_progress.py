"""Without a terminal progress is plain lines with count, rate and time left."""

import re

import pytest

from xlm.runs import progress
from xlm.runs.progress import Progress, track


def test_plain_lines(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_INTERVAL_S", 0.0)
    with Progress("shards", total=4, unit="shard") as shown:
        shown.advance(1, note="de")
    lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"shards: 1 of 4 shard, [\d,.]+/s, [\d,]+ s left, de", lines[0])
    assert re.fullmatch(r"shards: 1 shard in [\d.]+ s", lines[1])


def test_every_item_is_passed_on(capsys):
    assert list(track(range(5), "items", total=5, unit="item")) == [0, 1, 2, 3, 4]
    assert "items: 5 item" in capsys.readouterr().err


def test_failed_work_does_not_say_it_is_done(capsys):
    with pytest.raises(RuntimeError), Progress("work", total=None, unit="step"):
        raise RuntimeError
    assert "step in" not in capsys.readouterr().err
