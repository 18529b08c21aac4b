"""Fingerprints see what matters and nothing else."""

import hashlib

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
