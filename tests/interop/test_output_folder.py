"""A folder that is complete or absent."""

import pytest

from xlm.errors import UserError
from xlm.interop.output_folder import new_folder


def write_half(path):
    with new_folder(path) as partial:
        (partial / "file").write_text("half", encoding="utf-8")
        raise ZeroDivisionError


def test_a_folder_is_complete_or_absent_and_never_written_over(tmp_path):
    with pytest.raises(ZeroDivisionError):
        write_half(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    with new_folder(tmp_path / "out") as partial:
        (partial / "file").write_text("whole", encoding="utf-8")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out" / "file").read_text(encoding="utf-8") == "whole"
    with pytest.raises(UserError, match="exists already"), new_folder(tmp_path / "out"):
        pass


def test_a_place_where_no_folder_can_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="no folder can be made here"), new_folder(tmp_path / "file" / "out"):
        pass
