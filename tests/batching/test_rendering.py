import json

import numpy as np
import pytest

from xlm.batching.collate import RowsOfBatch, collate
from xlm.batching.packed_batch import SegmentSource
from xlm.batching.packed_rows import PackedRows
from xlm.batching.rendering import WIDTH, lines, show

LANGUAGES = ["en", "zh-Hans"]


class Vocabulary:
    pieces = ("<pad>", "<unk>", "<s>", "</s>", "<mask>", "▁whale", "s", "▁swim", "鲸", "鱼")

    def decode(self, ids):
        return "".join(self.pieces[number] for number in ids if number > 4).replace("▁", " ").strip()


def one_sequence(objective, ids, *, positions=None, languages=None, types=None, predicted=None, label=-1, sources=()):
    predicted = predicted or {}
    count = len(ids)
    rows = PackedRows(
        objective=objective,
        input_ids=np.array(ids),
        position_ids=np.arange(count) if positions is None else np.array(positions),
        token_type_ids=np.zeros(count, dtype=np.int64) if types is None else np.array(types),
        language_ids=np.zeros(count, dtype=np.int64) if languages is None else np.array(languages),
        sequence_lengths=np.array([count]),
        sequences_per_row=np.array([1]),
        predict_positions=np.array(list(predicted), dtype=np.int64),
        labels=np.array(list(predicted.values()), dtype=np.int64),
        pair_keys=np.array([-1]),
        sequence_labels=np.array([label]),
    )
    (batch,) = collate([RowsOfBatch(rows, np.array([12]), [sources] if sources else ())], [1])
    (sequence,) = show(batch, Vocabulary(), LANGUAGES)
    return sequence


@pytest.fixture
def tlm():
    """``<s> ▁whale s </s> 鲸 鱼 </s>`` with a mask, a random piece and a kept one."""
    return one_sequence(
        "tlm",
        [2, 4, 6, 3, 8, 7, 3],
        languages=[0, 0, 0, 0, 1, 1, 1],
        types=[0, 0, 0, 0, 1, 1, 1],
        predicted={1: 5, 4: 8, 5: 9},
        sources=(SegmentSource("en_zh-Hans", 7, "k7", 0, 2), SegmentSource("en_zh-Hans", 7, "k7", 2, 4)),
    )


def test_a_sequence_reads_as_the_model_saw_it(tlm):
    assert list(lines(tlm)) == [
        "row 12 · tlm",
        "  from     en_zh-Hans#7[0:2] k7",
        "  from     en_zh-Hans#7[2:4] k7",
        "  text     whales鲸鱼",
        "  en          0–3    type 0  <s> [<mask>→▁whale] s </s>",
        "  zh-Hans     4–6    type 1  [鲸→鲸] [▁swim→鱼] </s>",
    ]


def test_json_holds_the_same(tlm):
    values = json.loads(json.dumps(tlm.as_json()))
    assert (values["row"], values["objective"], values["pair"], values["label"]) == (12, "tlm", None, None)
    assert values["sources"][1] == {"corpus": "en_zh-Hans", "item": 7, "name": "k7", "start": 2, "end": 4}
    assert values["text"] == "whales鲸鱼"
    assert values["tokens"][5] == {"piece": "▁swim", "target": "鱼", "position": 5, "language": "zh-Hans", "token_type": 1}
    assert values["tokens"][2]["target"] is None


def test_positions_that_restart_begin_a_paragraph():
    # XLM's form, both sides in one language id.
    printed = list(lines(one_sequence("tlm", [3, 5, 3, 3, 8, 9, 3], positions=[0, 1, 2, 0, 1, 2, 3])))
    assert printed[2:] == ["  en          0–2    type 0  </s> ▁whale </s>", "  en          0–3    type 0  </s> 鲸 鱼 </s>"]


def test_labels_are_told_in_words():
    assert next(lines(one_sequence("nsp", [2, 5, 3, 7, 3], label=1))) == "row 12 · nsp · label 1 (B is of another document)"
    assert next(lines(one_sequence("sop", [2, 5, 3, 7, 3], label=0))) == "row 12 · sop · label 0 (in order)"


def test_causal_predictions_are_said_once():
    sequence = one_sequence("clm", [2, 5, 6, 3], predicted={0: 5, 1: 6, 2: 3})
    assert list(lines(sequence)) == [
        "row 12 · clm · each position predicts the next piece",
        "  text     whales",
        "  en          0–3    type 0  <s> ▁whale s </s>",
    ]
    assert [token.target for token in sequence.tokens] == ["▁whale", "s", "</s>", None]


def test_pairs_carry_their_place_in_the_row():
    pairs = PackedRows(
        objective="contrastive",
        input_ids=np.array([2, 5, 3, 2, 8, 3] * 2),
        position_ids=np.array([0, 1, 2] * 4),
        token_type_ids=np.zeros(12, dtype=np.int64),
        language_ids=np.array([0, 0, 0, 1, 1, 1] * 2),
        sequence_lengths=np.array([3] * 4),
        sequences_per_row=np.array([4]),
        predict_positions=np.empty(0, dtype=np.int64),
        labels=np.empty(0, dtype=np.int64),
        pair_keys=np.array([77, 77, 78, 78]),
        sequence_labels=np.full(4, -1),
    )
    (batch,) = collate([RowsOfBatch(pairs, np.array([3]))], [1])
    sequences = list(show(batch, Vocabulary(), LANGUAGES))
    assert [sequence.pair for sequence in sequences] == [0, 0, 1, 1]
    assert next(lines(sequences[3])) == "row 3 · contrastive · pair 1"


def test_long_sequences_wrap():
    text = "\n".join(lines(one_sequence("mlm", [2, *[5] * 200, 3])))
    assert text.count("▁whale") == 200
    assert max(map(len, text.splitlines())) <= WIDTH
