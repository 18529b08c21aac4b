import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from xlm.evaluation.packing import batches_by_length, pack, tokenise
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary


@pytest.fixture(scope="module")
def vocabulary():
    lines = ["turn on the light in the kitchen", "schalte das licht in der küche ein", "open the door", "öffne die tür"] * 5
    return train_vocabulary(lines, VocabularySpec(size=330, threads=1))


def test_texts_get_both_special_pieces(vocabulary):
    tokenised = tokenise(vocabulary, ["turn on the light", ""], 64)
    assert [sequence[0] for sequence in tokenised.sequences] == [vocabulary.bos_id] * 2
    assert [sequence[-1] for sequence in tokenised.sequences] == [vocabulary.eos_id] * 2
    assert tokenised.sequences[0][1:-1].tolist() == vocabulary.encode("turn on the light").tolist()
    assert tokenised.lengths.tolist() == [len(vocabulary.encode("turn on the light")) + 2, 2]
    assert tokenised.cut == 0


def test_longer_texts_are_cut_and_counted(vocabulary):
    text = "turn on the light in the kitchen " * 10
    tokenised = tokenise(vocabulary, [text, "open"], 16)
    assert tokenised.cut == 1
    assert len(tokenised.sequences[0]) == 16
    assert tokenised.sequences[0][-1] == vocabulary.eos_id
    assert tokenised.sequences[0][1:-1].tolist() == vocabulary.encode(text)[:14].tolist()


@given(st.lists(st.integers(2, 40), max_size=60), st.integers(1, 120))
@settings(max_examples=60, deadline=None)
def test_batches_hold_every_text_once_and_keep_to_the_budget(lengths, budget):
    sizes = np.array(lengths, dtype=np.int64)
    batches = list(batches_by_length(sizes, budget))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or sizes[batch].sum() <= budget for batch in batches)
    flat = [sizes[index] for batch in batches for index in batch]
    assert flat == sorted(flat)


def test_pack_restarts_positions_and_marks_boundaries():
    batch = pack([np.array([2, 9, 3]), np.array([2, 3])], language_id=4)
    assert batch.input_ids.tolist() == [2, 9, 3, 2, 3]
    assert batch.position_ids.tolist() == [0, 1, 2, 0, 1]
    assert batch.cu_seqlens.tolist() == [0, 3, 5]
    assert batch.cu_seqlens.dtype == torch.int32
    assert batch.language_ids.tolist() == [4] * 5


def test_pack_of_nothing_is_an_empty_batch():
    batch = pack([])
    assert batch.input_ids.tolist() == []
    assert batch.cu_seqlens.tolist() == [0]
    assert batch.language_ids is None
