"""Stages that were not made from one another are never scored together."""

import pytest

from xlm.errors import UserError
from xlm.runs.folder import RunFolder
from xlm.runs.lineage import check_before_scoring, check_lineage, stage_records
from xlm.runs.stage import Stage


def write(folder, name, **inputs):
    stage = Stage(folder / name, name, inputs)
    with stage.write():
        pass
    return stage.fingerprint


@pytest.fixture
def run(tmp_path):
    tasks = write(tmp_path, "tasks", seed="1")
    corpus = write(tmp_path, "corpus", tasks=tasks, code="x")
    train = write(tmp_path, "train", corpus=corpus)
    write(tmp_path, "zero_shot", train=train, tasks=tasks)
    return RunFolder(tmp_path)


def test_a_chain_that_holds_passes_in_the_order_of_the_data(run):
    assert list(stage_records(run)) == ["tasks", "corpus", "train", "zero_shot"]
    check_lineage(stage_records(run), run.root)
    check_before_scoring(run)


def test_a_corpus_that_kept_other_evaluation_sets_out_is_not_scored_on_these(run):
    write(run.root, "tasks", seed="7")
    with pytest.raises(UserError, match="'corpus' was made from another 'tasks'"):
        check_before_scoring(run)


def test_a_corpus_from_which_nothing_was_kept_out_is_not_scored(run):
    write(run.root, "corpus", tasks="none", code="x")
    with pytest.raises(UserError, match="'corpus' was made from another 'tasks'"):
        check_before_scoring(run)
    write(run.root, "train", corpus=stage_records(run)["corpus"].fingerprint)
    check_lineage(stage_records(run), run.root, scored=False)


def test_old_scores_do_not_hinder_new_ones_but_are_not_reported(run):
    write(run.root, "train", corpus=stage_records(run)["corpus"].fingerprint, seed="2")
    check_before_scoring(run)
    with pytest.raises(UserError, match="'zero_shot' was made from another 'train'"):
        check_lineage(stage_records(run), run.root)


def test_a_stage_that_has_no_use_for_another_says_so_with_nothing(run):
    write(run.root, "zero_shot", train=stage_records(run)["train"].fingerprint, corpus="", embeddings="")
    write(run.root, "embeddings", seed="1")
    check_lineage(stage_records(run), run.root)
