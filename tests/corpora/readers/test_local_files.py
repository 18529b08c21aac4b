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
        ("x.jsonl", b'{"text": 3}\n', {"kind": "jsonl"}, r"x\.jsonl:1: field 'text' holds int; text or null is expected"),
        ("x.jsonl", b'{"text": "a"}\n\n{"text": "\\ud800"}\n', {"kind": "jsonl"}, r"x\.jsonl:3: .*half of a surrogate pair"),
        ("x.jsonl", b'{"text": "a", "n": ' + b"[" * 100_000 + b"}", {"kind": "jsonl"}, r"x\.jsonl:1: this JSON is nested too deeply"),
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


@pytest.mark.parametrize("name", ["news[1]", "news?", "news*", "news::1", "zip::news1", "my news", "habari–ñ", "[1"])
@pytest.mark.parametrize("kind", ["text", "jsonl", "parquet"])
def test_exactly_the_named_file_is_read(tmp_path, name, kind):
    """Names that are patterns or URLs to other programs; the file that such a pattern finds lies beside."""
    folder = tmp_path / "corpus [a-z]"
    folder.mkdir()
    for stem in (name, "news1", "newsx", "news"):
        path, text = folder / f"{stem}.{kind}", "right" if stem == name else "wrong"
        if kind == "parquet":
            pq.write_table(pa.table({"text": [text]}), path.open("wb"))
        else:
            path.write_text(json.dumps({"text": text}) if kind == "jsonl" else text, encoding="utf-8")
    assert read(folder / f"{name}.{kind}", kind=kind) == (["right"], {})


def test_only_the_text_field_of_json_lines_matters(tmp_path):
    rows = [
        '{"text": "a", "n": null}',
        '{"text": "b", "n": "now a string"}',
        '{"text": null, "n": [1, {"x": 2}]}',
        '{"text": "c", "n": 1, "n": 2.5, "late": true}',
        '{"n": ' + "9" * 10_000 + ', "text": "d"}',
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(rows), encoding="utf-8")
    assert read(tmp_path / "x.jsonl", kind="jsonl") == (["a", "b", "c", "d"], {"no text": 1})


def test_paragraphs_are_parted_by_blank_lines(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"\n\none\r\ntwo\r\n\r\n \t\nthree")
    assert read(tmp_path / "x.txt", kind="text", document="paragraph") == (["one\ntwo", "three"], {})


def test_a_damaged_or_empty_parquet_file_is_one_sentence(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": [f"text {number}" for number in range(50_000)]}), path)
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 3_000 + content[3_004:])
    with pytest.raises(UserError, match=r"x\.parquet: this parquet file is damaged") as raised:
        read(path, kind="parquet")
    assert "\n" not in str(raised.value)
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    with pytest.raises(UserError, match=r"x\.parquet: this parquet file has no rows"):
        read(path, kind="parquet")
    pq.write_table(pa.table({"text": [b"bytes"]}), path)
    with pytest.raises(UserError, match="column 'text' holds bytes in row 1"):
        read(path, kind="parquet")
    pq.write_table(pa.table([["a"], ["b"]], names=["text", "text"]), path)
    with pytest.raises(UserError, match="2 columns named 'text'"):
        read(path, kind="parquet")
