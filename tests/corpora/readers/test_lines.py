import gzip

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


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (gzip.compress(b"some text\n" * 99, mtime=0), "x.txt: this file is compressed with gzip; unpack it"),
        ("Grüße\n".encode("utf-16"), "x.txt: this file is UTF-16; save it as UTF-8"),
        (b"\xfe\xff" + "Grüße\n".encode("utf-16-be"), "x.txt: this file is UTF-16; save it as UTF-8"),
        ("Grüße\n".encode("utf-32"), "x.txt: this file is UTF-32; save it as UTF-8"),
    ],
)
def test_another_kind_of_file_is_called_by_its_name(tmp_path, content, sentence):
    (tmp_path / "x.txt").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        list(utf8_lines(tmp_path / "x.txt"))
