import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xlm.corpora.drops import DropCounts
from xlm.corpora.manifest import FilesSource
from xlm.corpora.readers.local_files import read_files
from xlm.errors import UserError


def read(path, **layout):
    drops = DropCounts()
    source = FilesSource(name="mine", kind="files", licence="own", paths=(path,), language="sw", format=layout)
    return [one.text for one in read_files(source, drops)], drops.by_reason()


def test_text_is_read_by_line_paragraph_or_file(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("Moja.\nMbili.\n\nTatu.\n", encoding="utf-8")
    assert read(path, kind="text") == (["Moja.", "Mbili.", "Tatu."], {"no text": 1})
    assert [text.split() for text in read(path, kind="text", document="paragraph")[0]] == [["Moja.", "Mbili."], ["Tatu."]]
    assert [text.split() for text in read(path, kind="text", document="file")[0]] == [["Moja.", "Mbili.", "Tatu."]]


def test_json_lines_and_parquet_give_their_text_field(tmp_path):
    rows = [{"body": "Moja", "n": 1}, {"body": "", "n": 2}, {"body": "Mbili", "n": 3}]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    for kind in ("jsonl", "parquet"):
        assert read(tmp_path / f"x.{kind}", kind=kind, text_field="body") == (["Moja", "Mbili"], {"no text": 1})


@pytest.mark.parametrize(
    ("name", "content", "layout", "sentence"),
    [
        ("x.txt", b"fine\n\xff\n", {"kind": "text"}, r"x\.txt:2: not valid UTF-8"),
        ("x.jsonl", b'{"text": "a"}\n{"text" "b"}\n', {"kind": "jsonl"}, r"x\.jsonl:2: not valid JSON"),
        ("x.jsonl", b'{"text": "a"}\n{"body": "b"}\n', {"kind": "jsonl"}, r"x\.jsonl:2: this line has no field 'text'; it has: body"),
        ("x.jsonl", b"[1]\n", {"kind": "jsonl"}, r"x\.jsonl:1: a JSON object is expected"),
        ("x.jsonl", b'{"text": 3}\n', {"kind": "jsonl"}, "field 'text' of document 1 holds a int"),
        ("x.parquet", b"not parquet", {"kind": "parquet"}, "this is not a parquet file"),
    ],
)
def test_broken_files_are_named(tmp_path, name, content, layout, sentence):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        read(tmp_path / name, **layout)


def test_a_missing_file_or_column_is_named(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        read(tmp_path / "none.txt", kind="text")
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "x.parquet")
    with pytest.raises(UserError, match="no column 'text'; it has: body"):
        read(tmp_path / "x.parquet", kind="parquet")
