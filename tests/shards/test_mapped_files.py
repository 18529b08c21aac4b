"""Which files stay open."""

from xlm.shards.mapped_files import MappedFiles


def test_the_least_recently_used_file_is_let_go():
    files = MappedFiles(max_files=2)
    files.put("a", 1, 10)
    files.put("b", 2, 10)
    assert files.get(int, "a") == 1
    files.put("c", 3, 10)
    assert [files.get(int, name) for name in "abc"] == [1, None, 3]


def test_bytes_are_bounded_but_one_file_always_stays():
    files = MappedFiles(max_files=10, max_bytes=25)
    files.put("a", 1, 10)
    files.put("b", 2, 10)
    files.put("c", 3, 10)
    assert [files.get(int, name) for name in "abc"] == [None, 2, 3]
    files.put("d", 4, 100)
    assert [files.get(int, name) for name in "bcd"] == [None, None, 4]
    files.put("e", 5, 1)
    assert [files.get(int, name) for name in "de"] == [None, 5]


def test_kinds_share_the_room_but_not_the_names():
    files = MappedFiles(max_files=10, max_bytes=25)
    files.put("a", 1, 10)
    files.put("a", "one", 10)
    assert (files.get(int, "a"), files.get(str, "a")) == (1, "one")
    files.put("b", "two", 10)
    assert (files.get(int, "a"), files.get(str, "a"), files.get(str, "b")) == (None, "one", "two")
