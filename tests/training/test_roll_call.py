import json
import os
import subprocess
import sys

import pytest
from ranks import HERE, ROOT

SCENARIOS = ["mistake:2", "late mistake:1", "late mistake:0,1,2", "killed:2", "killed:0", "bug:1", "stuck:1", "lost:0"]


@pytest.fixture(scope="module")
def ended():
    """Of each scenario the exit codes of three ranks, what they printed, and the sentences in it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(HERE / "roll_call_ranks.py"), *SCENARIOS]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    results = {}
    for scenario, (codes, printed) in zip(SCENARIOS, json.loads(done.stdout), strict=True):
        sentences = [[line for line in text.splitlines() if line.startswith("error: ")] for text in printed]
        results[scenario] = codes, sentences, printed
    return results


@pytest.mark.parametrize(
    ("scenario", "codes", "sentence"),
    [
        ("mistake:2", [2, 2, 2], "the recipe is not there."),
        ("late mistake:1", [2, 2, 2], "(rank 1): the disk is full."),
        ("late mistake:0,1,2", [2, 2, 2], "error: the disk is full."),
        ("killed:2", [75, 75, -9], "(rank 2) ended without a word: killed"),
        ("stuck:1", [75, 75, 75], "(rank 1) was at tests/training/roll_call_ranks.py:"),
    ],
)
def test_what_ends_a_rank_is_said_once_by_rank_0_and_ends_all(ended, scenario, codes, sentence):
    found, sentences, printed = ended[scenario]
    assert found == codes, printed
    assert [len(of) for of in sentences] == [1, 0, 0], sentences
    assert sentence in sentences[0][0]
    assert "Traceback" not in "".join(printed)


def test_a_mistake_before_the_ranks_meet_is_said_with_its_host(ended):
    assert ended["mistake:2"][1][0][0].startswith("error: rank 2 on ")


def test_where_rank_0_is_lost_the_first_other_rank_of_a_host_says_so(ended):
    codes, sentences, printed = ended["killed:0"]
    assert codes == [-9, 75, 75], printed
    assert [len(of) for of in sentences] == [0, 1, 0], sentences
    assert "(rank 1): no sign of rank 0 on " in sentences[1][0]
    assert "Traceback" not in "".join(printed)


def test_where_rank_0_is_lost_while_the_ranks_meet_one_says_so(ended):
    codes, sentences, printed = ended["lost:0"]
    assert codes == [-9, 75, 75], printed
    assert [len(of) for of in sentences] == [0, 1, 0], sentences
    assert ": rank 0 was lost before training began. Start the same command again" in sentences[1][0]
    assert "Traceback" not in "".join(printed)


def test_a_bug_keeps_its_traceback_and_rank_0_says_where_it_is(ended):
    codes, sentences, printed = ended["bug:1"]
    assert codes == [1, 1, 1]
    assert "Traceback" in printed[1]
    assert "ZeroDivisionError: division by zero" in printed[1]
    assert "(rank 1) ended with an error, its traceback is in what it printed: ZeroDivisionError: division by zero" in sentences[0][0]
    assert "Traceback" not in printed[0] + printed[2]
