import pytest

from xlm.corpora.readers.lines import utf8_lines
from xlm.errors import UserError


def test_lines_end_at_line_feeds_alone(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes("\ufeffone\r\ntwo\u2028still two\n\nfour".encode())
    assert list(utf8_lines(path)) == ["one", "two\u2028still two", "", "four"]


def test_invalid_utf8_names_file_and_line(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"fine\nGr\xfc\xdfe\n")
    with pytest.raises(UserError, match=r"x\.txt:2: not valid UTF-8 at byte 3"):
        list(utf8_lines(path))
    with pytest.raises(UserError, match="cannot be read"):
        list(utf8_lines(tmp_path / "none.txt"))
