import zipfile

import pytest

from xlm.corpora import archive as archive_module
from xlm.corpora.archive import Archive, member_expression
from xlm.errors import UserError


def write(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as stream:
        for name, content in members.items():
            stream.writestr(name, content)
    return path


@pytest.mark.parametrize("name", ["../evil.txt", "a/../../evil.txt", "/etc/passwd", "..\\evil.txt", "C:\\evil.txt", "C:/evil.txt"])
def test_a_wheel_whose_paths_climb_out_is_refused_whole(tmp_path, name):
    path = write(tmp_path / "x.whl", {"good.txt": "fine", name: "evil"})
    with pytest.raises(UserError, match="would climb out of the archive") as error:
        Archive(path)
    assert str(path) in str(error.value)


def test_members_are_found_by_pattern_and_read_without_unpacking(tmp_path):
    names = [
        "p/a/locale/de/LC_MESSAGES/x.po",
        "p/locale/de/LC_MESSAGES/x.mo",
        "p/a/b/locale/de/LC_MESSAGES/y.po",
        "p/locale/de_AT/LC_MESSAGES/x.po",
    ]
    path = write(tmp_path / "x.whl", dict.fromkeys(names, "\ufeffGrüße"))
    before = sorted(tmp_path.rglob("*"))
    with Archive(path) as archive:
        assert archive.members("p/**/locale/{language}/LC_MESSAGES/*.po", "de") == [names[2], names[0]]
        assert archive.members("p/**/locale/{language}/LC_MESSAGES/*", "de_AT") == [names[3]]
        assert archive.read_text(names[0]) == "Grüße"
        assert archive.has(names[0])
        assert not archive.has("p")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_pattern_takes_no_character_but_its_stars_specially():
    assert member_expression("a.b/*+{language}", "zh-Hans").fullmatch("a.b/c+zh-Hans")
    assert not member_expression("a.b/*", "x").fullmatch("aXb/c")
    assert not member_expression("a/*", "x").fullmatch("a/b/c")


def test_bombs_are_refused_by_their_declared_size(tmp_path, monkeypatch):
    path = write(tmp_path / "x.whl", {"big": b"0" * 3_000_000, "small": b"ok"})
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(archive_module, "MAX_MEMBER_BYTES", 1_000_000)
    with Archive(path) as archive:
        assert archive.read("small") == b"ok"
        with pytest.raises(UserError, match="'big' unpacks to 3,000,000 bytes; at most 1,000,000"):
            archive.read("big")
    monkeypatch.setattr(archive_module, "MAX_TOTAL_BYTES", 2_000_000)
    with pytest.raises(UserError, match="unpacks to 3,000,002 bytes"):
        Archive(path)


def test_damage_is_one_sentence_with_the_place(tmp_path):
    (tmp_path / "not.whl").write_bytes(b"nothing like a zip file")
    with pytest.raises(UserError, match="cannot be opened"):
        Archive(tmp_path / "not.whl")
    path = write(tmp_path / "x.whl", {"text.po": b"fine\nalso\nbad \xff here"})
    with Archive(path) as archive, pytest.raises(UserError, match=r"x\.whl/text\.po:3: not valid UTF-8 in line 3"):
        archive.read_text("text.po")
    damaged = bytearray(path.read_bytes())
    damaged[40] ^= 0xFF
    path.write_bytes(damaged)
    with Archive(path) as archive, pytest.raises(UserError, match="cannot be read"):
        archive.read("text.po")
