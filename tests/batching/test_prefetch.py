import threading
import time

import pytest

from xlm.batching.prefetch import prefetched


def prefetch_threads():
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


def test_items_come_in_order():
    assert list(prefetched(iter(range(100)), 3)) == list(range(100))
    assert not prefetch_threads()


def test_an_error_comes_after_the_items_before_it():
    def items():
        yield 1
        yield 2
        raise RuntimeError("the shard is gone")

    stream = prefetched(items(), 2)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(RuntimeError, match="the shard is gone"):
        next(stream)
    assert not prefetch_threads()


def test_stopping_early_ends_the_thread():
    stream = prefetched(iter(range(10**9)), 2)
    next(stream)
    stream.close()
    assert not prefetch_threads()


def test_no_more_than_a_few_are_made_ahead():
    made = []

    def items():
        for number in range(50):
            made.append(number)
            yield number

    stream = prefetched(items(), 3)
    next(stream)
    time.sleep(0.3)
    assert 2 <= len(made) <= 5  # one taken, three waiting, one in hand
    stream.close()


def test_items_are_made_while_the_consumer_works():
    def items():
        for number in range(4):
            time.sleep(0.05)
            yield number

    stream = prefetched(items(), 4)
    next(stream)
    time.sleep(0.5)
    began = time.perf_counter()
    assert list(stream) == [1, 2, 3]
    assert time.perf_counter() - began < 0.1
