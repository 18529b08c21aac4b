import pytest

from xlm.corpora.placeholders import HOLE, BrokenPluralError, tidy_holes, without_placeholders


@pytest.mark.parametrize(
    "placeholder",
    ["%s", "%d", "%1$s", "%5.2f", "%(name)s", "%(n)6d", "{}", "{0}", "{day:d}", "{{branch}}", "${title}", "$name", "%n", "%1"],
)
def test_every_kind_of_placeholder_becomes_a_hole(placeholder):
    assert without_placeholders(f"a {placeholder} b") == f"a {HOLE} b"


def test_percent_signs_that_people_write_stay():
    assert without_placeholders("10% of 20 %, 5%% or 99% sure") == "10% of 20 %, 5% or 99% sure"


def test_plurals_and_selects_show_their_other_form():
    nested = "{g, select, male {{n, plural, =0 {none} other {his #}}} other {{n, plural, one {one} other {their #}}}}"
    assert without_placeholders(nested) == f"their {HOLE}"
    assert without_placeholders("{n, plural, one {# file} few {# soubory}}") == f"{HOLE} soubory"
    with pytest.raises(BrokenPluralError):
        without_placeholders("{n, plural, one {# file}")


@pytest.mark.parametrize(
    ("text", "tidy"),
    [
        ("… by …", "by"),
        ("Moved … to … .", "Moved … to."),
        ("Login … (…)", "Login"),
        ("Use “…” here", "Use … here"),
        ("…: …, … found", "found"),
        ("Wait……", "Wait"),
        ("plain", "plain"),
    ],
)
def test_holes_at_edges_in_quotes_and_brackets_are_tidied(text, tidy):
    assert tidy_holes(text) == tidy
