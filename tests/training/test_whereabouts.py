"""Where the main thread is, as another thread sees it."""

import threading

import torch
import torch.distributed as dist

from xlm.training.whereabouts import WAITING, whereabouts


def seen_while(work):
    """Return what a thread sees once ``work`` has said that it is under way."""
    under_way, seen = threading.Event(), []

    def look():
        under_way.wait(20)
        seen.append(whereabouts())

    thread = threading.Thread(target=look)
    thread.start()
    work(under_way.set, thread.join)
    return seen[0]


def test_a_line_of_this_project_is_named():
    def busy(say, end):
        say()
        end()

    assert seen_while(busy).startswith("tests/training/test_whereabouts.py:")
    assert seen_while(busy).endswith("(busy)")


def test_in_a_collective_it_waits(monkeypatch, tmp_path):
    def in_a_collective(say, end):
        def waits(*_, **__):
            say()
            end()

        # What it waits in, called from the library's own code.
        monkeypatch.setattr(dist.distributed_c10d, "_rank_not_in_group", waits)
        dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
        try:
            dist.all_reduce(torch.ones(1))
        finally:
            monkeypatch.undo()
            dist.destroy_process_group()

    assert seen_while(in_a_collective) == WAITING
