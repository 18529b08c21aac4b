"""Fingerprints see what matters and nothing else."""

import ast
import hashlib
from pathlib import Path

import pytest

import xlm
from xlm.runs.fingerprint import code_fingerprint, combine, file_sha256, fingerprint


def test_key_order_does_not_count_but_values_do():
    assert fingerprint({"a": 1, "b": [1, 2]}) == fingerprint({"b": [1, 2], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": "1"})
    assert fingerprint([1, 2]) != fingerprint([2, 1])
    assert combine({"a": "x", "b": "y"}) == combine({"b": "y", "a": "x"})


def test_file_hash_is_sha256(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"x" * 3_000_000)
    assert file_sha256(path) == hashlib.sha256(b"x" * 3_000_000).hexdigest()


def test_code_of_a_room_is_its_own():
    assert code_fingerprint("vocab") == code_fingerprint("vocab")
    assert code_fingerprint("vocab") != code_fingerprint("shards")


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A copy of the layout with two rooms and one module, in the place of ``xlm``."""
    root = tmp_path / "xlm"
    for name in ("__init__.py", "seeding.py", "errors.py", "vocab/a.py", "shards/b.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\n", encoding="utf-8")
    monkeypatch.setattr(xlm, "__file__", str(root / "__init__.py"))
    return root


def test_an_edit_counts_for_the_rooms_it_is_in_and_seeding_for_all(library):
    before = {name: code_fingerprint(name) for name in ("vocab", "shards", "errors", "seeding")}
    assert len(set(before.values())) == 4
    (library / "vocab" / "a.py").write_text("x = 1\n", encoding="utf-8")
    assert {name for name in before if code_fingerprint(name) != before[name]} == {"vocab"}
    (library / "seeding.py").write_text("x = 1\n", encoding="utf-8")
    assert {name for name in before if code_fingerprint(name) != before[name]} == {"vocab", "shards", "errors", "seeding"}


@pytest.mark.parametrize("name", ["vocabulary", "", ".", "..", "vocab/a", "a"])
def test_a_name_without_sources_is_refused(library, name):
    with pytest.raises(ValueError, match="no room or module named"):
        code_fingerprint("vocab", name)


def test_every_caller_names_what_there_is():
    root = Path(xlm.__file__).parents[1]
    named = set()
    for path in [*(root / "pipelines").glob("*.py"), *(root / "xlm").rglob("*.py")]:
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "code_fingerprint":
                named |= {part.value for part in call.args if isinstance(part, ast.Constant)}
    assert {"corpora", "vocab", "evaluation"} <= named
    for name in named:
        code_fingerprint(name)
