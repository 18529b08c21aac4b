import os

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

import xlm.training.distributed as distributed
from xlm.training.distributed import Process, gather_numbers, join_group, leave_group, set_threads, tell_all


def test_a_plain_start_is_rank_0_of_1(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert Process.from_environment() == Process(0, 1, 0, 1)


def test_the_launchers_environment_is_read(monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    for name, value in {"RANK": 3, "WORLD_SIZE": 4, "LOCAL_RANK": 1, "LOCAL_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    process = Process.from_environment()
    assert process == Process(3, 4, 1, 2)
    assert not process.is_main


@pytest.fixture
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
def test_local_ranks_share_the_cores_unless_told(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert set_threads(Process(0, 4, 0, 2)) == 4
    assert set_threads(Process(0, 16, 0, 16)) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    torch.set_num_threads(3)
    assert set_threads(Process(0, 1, 0, 1)) == 3


def test_one_process_needs_no_launcher(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    join_group(Process(0, 1, 0, 1), timeout_s=20)
    try:
        assert dist.get_world_size() == 1
        assert tell_all({"a": 1}) == {"a": 1}
        assert gather_numbers([1, 2], torch.device("cpu")) == [[1, 2]]
    finally:
        leave_group()
    assert not dist.is_initialized()


def test_the_kernel_cache_is_bounded_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    distributed.bound_kernel_cache()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "128"
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    distributed.bound_kernel_cache()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "7"


@pytest.mark.parametrize(("how", "told"), [("done", "{'by': 0}"), ("refused", "rank 0: train: read-only file system; use a folder that")])
def test_ranks_wait_for_work_of_rank_0_longer_than_a_collective_may(how, told):
    for printed in run_ranks("told_rank.py", [how], 2):
        assert printed.startswith(told)
