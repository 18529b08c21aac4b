import pytest

from xlm.corpora.markup import visible_text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("<script>var x;</script>Text<!-- not seen -->", " Text "),
        ("un<em>believ</em>able", "unbelievable"),
        ("one<br>two", "one two"),
        ("5 < 6 and 7 > 3", "5 < 6 and 7 > 3"),
        ("__init__ is kept, __bold__ is not", "init is kept, bold is not"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("![alt](x.png)see", " see"),
        ("```\ncode\n```", " "),
        ("# Heading\n- item", "Heading\nitem"),
        ("`text <https://x.org>`_", "text"),
        ("Rabi`al-Awwal", "Rabi`al-Awwal"),
    ],
)
def test_marks_go_and_text_stays(text, seen):
    assert visible_text(text) == seen
