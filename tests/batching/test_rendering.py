import json

import numpy as np
import pytest

from xlm.batching.collate import PlacedRows, collate
from xlm.batching.contrastive import contrastive_rows
from xlm.batching.packed_rows import PackedRows
from xlm.batching.rendering import WIDTH, lines, show
from xlm.batching.texts import Texts

PIECES = ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "▁whale", "s", "▁swim", "鲸", "鱼"]


@pytest.fixture
def tlm():
    """``<s> ▁whale s </s> 鲸 鱼 </s>`` with a mask, a random piece and a kept one."""
    ids = [2, 4, 6, 3, 8, 7, 3]
    rows = PackedRows(
        objective="tlm",
        input_ids=np.array(ids),
        position_ids=np.arange(7),
        token_type_ids=np.array([0, 0, 0, 0, 1, 1, 1]),
        language_ids=np.array([0, 0, 0, 0, 1, 1, 1]),
        sequence_lengths=np.array([7]),
        sequences_per_row=np.array([1]),
        predict_positions=np.array([1, 4, 5]),
        labels=np.array([5, 8, 9]),
        pair_keys=np.array([-1]),
    )
    return collate([PlacedRows(rows, np.array([12]), np.array([0]), ("en_zh-Hans#7[0:4]",))])


def test_a_sequence_reads_as_the_model_saw_it(tlm):
    (sequence,) = show(tlm, PIECES, ["en", "zh-Hans"])
    assert list(lines(sequence)) == [
        "row 12 · tlm · en_zh-Hans#7[0:4]",
        "  en          0–3    type 0  <s> [<mask>→▁whale] s </s>",
        "  zh-Hans     4–6    type 1  [鲸→鲸] [▁swim→鱼] </s>",
    ]


def test_json_holds_the_same(tlm):
    (sequence,) = show(tlm, PIECES, ["en", "zh-Hans"])
    values = json.loads(json.dumps(sequence.as_json()))
    assert (values["row"], values["objective"], values["pair"], values["source"]) == (12, "tlm", None, "en_zh-Hans#7[0:4]")
    assert values["tokens"][5] == {"piece": "▁swim", "target": "鱼", "position": 5, "language": "zh-Hans", "token_type": 1}
    assert values["tokens"][2]["target"] is None


def test_pairs_carry_their_number():
    rows = contrastive_rows(
        Texts.of([np.array([5])]),
        Texts.of([np.array([8, 9])]),
        np.array([1]),
        np.array([[0, 1]]),
        np.array([77]),
        pieces=type("Ids", (), {"bos_id": 2, "eos_id": 3}),
    )
    sequences = list(show(collate([PlacedRows(rows, np.array([3]), np.array([40]))]), PIECES, ["en", "zh-Hans"]))
    assert [sequence.pair for sequence in sequences] == [40, 40]
    assert next(lines(sequences[1])) == "row 3 · contrastive · pair 40"
    assert "鲸 鱼" in list(lines(sequences[1]))[1]


def test_long_sequences_wrap():
    rows = contrastive_rows(
        Texts.of([np.full(200, 5)]),
        Texts.of([np.array([8])]),
        np.array([1]),
        np.array([[0, 1]]),
        np.array([1]),
        pieces=type("Ids", (), {"bos_id": 2, "eos_id": 3}),
    )
    sequence = next(show(collate([PlacedRows(rows, np.array([0]), np.array([0]))]), PIECES, ["en", "zh-Hans"]))
    text = "\n".join(lines(sequence))
    assert text.count("▁whale") == 200
    assert max(map(len, text.splitlines())) <= WIDTH
