import pytest

from xlm.corpora.pair_filters import IDENTICAL, LENGTH_RATIO, WRONG_SCRIPT, length_ratio, pair_problem, text_problem


@pytest.mark.parametrize(
    ("source", "target", "language", "problem"),
    [
        ("Save the file", "Datei speichern", "de", None),
        ("OpenStreetMap", "openstreetmap!", "de", IDENTICAL),
        ("Settings", "Settings of it", "ru", WRONG_SCRIPT),
        ("Mode", "Der Modus, in dem sich das Gerät zur Zeit der letzten Messung befunden hat", "de", LENGTH_RATIO),
        ("Whales are mammals.", "鲸鱼是哺乳动物。", "zh-Hans", None),
        ("…!", "Ja", "de", "no words"),
    ],
)
def test_pairs_that_cannot_be_translations_are_named(source, target, language, problem):
    assert pair_problem(source, target, "en", language) == problem


def test_length_counts_dense_scripts_threefold_and_is_symmetric():
    assert length_ratio("abcdef", "鲸鱼") == 1.0
    assert length_ratio("a", "a" * 25) == length_ratio("a" * 25, "a") == 37 / 13


def test_a_text_alone_is_judged_by_its_script():
    assert text_problem("Привет", "ru") is None
    assert text_problem("Hello", "ru") == WRONG_SCRIPT
