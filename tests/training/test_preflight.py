import json
import re
from types import SimpleNamespace

import pytest
import torch

import xlm.training.preflight as preflight
from xlm.config.training import CheckpointSection
from xlm.errors import UserError
from xlm.training.distributed import Process
from xlm.training.meeting import Member
from xlm.training.preflight import Preflight, check_device, check_room, different, table

ONE = Process(0, 1, 0, 1)


def members(*facts, hosts=("alder", "birch", "cedar")):
    return [Member(rank, hosts[rank], "-", 1, of) for rank, of in enumerate(facts)]


def test_what_differs_from_most_is_found_and_rank_0_is_right_among_two():
    assert different(members({"a": "1"}, {"a": "1"})) == []
    (found,) = different(members({"a": "1"}, {"a": "2"}, {"a": "2"}))
    assert (found[0], found[1].host, *found[2:]) == ("a", "alder", "1", "2")
    (found,) = different(members({"a": "1"}, {"a": "2"}))
    assert (found[1].host, *found[2:]) == ("birch", "2", "1")
    (found,) = different(members({"a": "1", "b": "3"}, {"a": "1"}))
    assert found[2:] == ("-", "3")


def test_commits_are_shown_beside_code_and_count_for_nothing():
    assert different(members({"code": "x", "commit": "abc"}, {"code": "x", "commit": "def"})) == []
    found = different(members({"code": "x", "commit": "abc"}, {"code": "y", "commit": "def"}))
    assert table(found).splitlines() == ["what  host   rank  has      most have", "code  birch  1     y (def)  x"]


def this_rank(folder, *, is_main, inputs=None):
    recipe = CheckpointSection()  # any settings will do
    config = folder / "ds.json"
    config.write_text(json.dumps({"zero_optimization": {"stage": 2}}), encoding="utf-8")
    return Preflight(recipe, inputs or {"shards": "abc"}, config, folder / "run", Process(0 if is_main else 1, 2, 0, 1))


def test_the_same_ranks_pass_silently_and_leave_nothing(tmp_path, capsys):
    ranks = [this_rank(tmp_path, is_main=rank == 0) for rank in range(2)]
    facts = [rank.facts() for rank in ranks]
    assert facts[0]["DeepSpeed: zero_optimization.stage"] == "2"
    assert facts[0]["every_steps"] == "500"
    assert facts[0]["shards"] == "abc"
    assert re.fullmatch("[0-9a-f]{16}", facts[0]["code"])
    assert facts[0]["torch"] == torch.__version__.partition("+")[0] or facts[0]["torch"] == torch.__version__
    ranks[0].compare(members(*facts))
    assert capsys.readouterr() == ("", "")
    assert list((tmp_path / "run").iterdir()) == []


def test_a_difference_is_a_table_and_a_sentence(tmp_path, capsys):
    first = this_rank(tmp_path, is_main=True)
    facts = first.facts()
    other = {**facts, "numpy": "1.0", "every_steps": "7"}
    with pytest.raises(UserError, match=r"^birch \(rank 1\) has numpy 1.0, most have .* \(1 more in the table above\); training needs"):
        first.compare(members(facts, other, facts))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[:3] for line in lines] == [["what", "host", "rank"], ["numpy", "birch", "1"], ["every_steps", "birch", "1"]]


def test_a_run_folder_that_is_not_shared_is_noticed(tmp_path):
    first = this_rank(tmp_path, is_main=True)
    (tmp_path / "elsewhere").mkdir()
    second = this_rank(tmp_path / "elsewhere", is_main=False)
    with pytest.raises(UserError, match=r"^birch \(rank 1\) does not see the run folder of rank 0"):
        first.compare(members(first.facts(), second.facts()))


def test_too_little_memory_or_space_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "free_memory", lambda: 1200)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1200))
    room = {"zero": {"stage": 1}, "folder": tmp_path}
    check_room([], ONE, parameters=100, **room)  # 4 bytes of gradient, 8 of moments: just enough of both
    with pytest.raises(UserError, match=r"this machine has 0.00 GB of free memory"):
        check_room([], ONE, parameters=101, **room)
    monkeypatch.setattr(preflight, "free_memory", lambda: 10**9)
    with pytest.raises(UserError, match=r"a checkpoint takes 0.00 GB; free some space"):
        check_room([], ONE, parameters=101, **room)
    # On two ranks of one host, stage 2 shares everything: what one rank needed, both do together.
    told = [[1200, 2], [1200, 2]]
    monkeypatch.setattr(preflight, "gather_numbers", lambda own, device: told)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**9))
    two, both = Process(0, 2, 0, 2), members({}, {}, hosts=("alder", "alder"))
    check_room(both, two, parameters=100, zero={"stage": 2}, folder=tmp_path)
    with pytest.raises(UserError, match=r"^alder has"):
        check_room(both, two, parameters=100, zero={"stage": 1}, folder=tmp_path)


def test_what_is_offloaded_has_to_fit_into_the_hosts_memory_and_not_the_gpus(tmp_path, monkeypatch):
    monkeypatch.setattr(Process, "device", lambda self: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (500, 1000))
    monkeypatch.setattr(preflight, "free_memory", lambda: 1200)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**9))
    offloaded = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    check_room([], ONE, parameters=100, zero=offloaded, folder=tmp_path)
    with pytest.raises(UserError, match=r"free memory, and"):
        check_room([], ONE, parameters=101, zero=offloaded, folder=tmp_path)
    with pytest.raises(UserError, match=r"free memory on a GPU"):
        check_room([], ONE, parameters=100, zero={"stage": 2}, folder=tmp_path)


def test_a_git_that_does_not_answer_is_no_reason_to_end(monkeypatch):
    def silent(*_, **__):
        raise preflight.subprocess.TimeoutExpired("git", 10)

    monkeypatch.setattr(preflight.subprocess, "run", silent)
    assert preflight._commit() == "unknown"


def test_more_ranks_than_gpus_are_one_sentence(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_device(torch.device("cuda", 1))
    check_device(torch.device("cpu"))
    with pytest.raises(UserError, match=r"there is no GPU 2 here, of 2; start as many ranks"):
        check_device(torch.device("cuda", 2))
