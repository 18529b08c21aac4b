"""A user's mistake is one sentence and exit code 2; a bug keeps its traceback."""

import numpy as np
import pytest

from xlm.errors import NotSupportedYetError, UserError, exits_cleanly, suggest


def test_the_sentence_starts_with_file_and_line():
    assert str(UserError("no.", file="a.yaml", line=3)) == "a.yaml:3: no."
    assert str(UserError("no.", file="a.yaml")) == "a.yaml: no."
    assert str(UserError("no.")) == "no."


def test_what_is_not_built_says_what_to_do_instead():
    assert str(NotSupportedYetError("fp16", "use bf16")) == "fp16 is not supported yet; use bf16."


def test_a_close_name_is_suggested_and_a_distant_one_is_not():
    assert suggest("mask_rat", ["mask_rate", "steps"]) == " (did you mean 'mask_rate'?)"
    assert suggest("zzz", ["mask_rate", "steps"]) == ""


@pytest.mark.parametrize(
    ("raised", "code", "words"), [(UserError("wrong.", file="f"), 2, "error: f: wrong."), (KeyboardInterrupt(), 130, "same command")]
)
def test_scripts_end_with_a_sentence(raised, code, words, capsys):
    @exits_cleanly
    def main():
        raise raised

    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert words in capsys.readouterr().err


def test_what_the_system_refuses_is_a_sentence_too(tmp_path, capsys):
    (tmp_path / "file").write_text("x")

    @exits_cleanly
    def below_a_file():
        (tmp_path / "file" / "run").mkdir()

    @exits_cleanly
    def full_disk():
        with open("/dev/full", "w") as stream:  # noqa: PTH123
            stream.write("x")

    @exits_cleanly
    def full_disk_for_an_array():
        with open("/dev/full", "wb", buffering=0) as stream:  # noqa: PTH123
            np.zeros(100_000).tofile(stream)

    for main, words in (
        (full_disk_for_an_array, "no space left on device; free some space"),
        (below_a_file, "file/run: not a directory; use another path"),
        (full_disk, "no space left on device; free some space"),
    ):
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert words in capsys.readouterr().err


def test_a_bug_keeps_its_traceback():
    @exits_cleanly
    def main():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        main()
