import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlm.corpora.normalise import Drop, normalise, normalise_running_text

SEEN = [
    # placeholders
    ("Could not push %(component)s: %(error_text)s", "Could not push"),
    ("Born in %(birth_place)s.", "Born in."),
    ("Reference to {quantity} missing object was kept\n", "Reference to … missing object was kept"),
    ("Turn on {entity_name}, please", "Turn on …, please"),
    ("'{name}' is on", "is on"),
    ("%d%% of memory", "% of memory"),
    ("$d days and $h hours", "days and … hours"),
    ("100% sure, 50%der", "100% sure, 50%der"),
    ("{count, plural, one {# file} other {# files of {name}}} left", "files of … left"),
    # markup
    ("<b>The Homepage</b><br/>is <a href='{url}'>here</a>.", "The Homepage is here."),
    ("Sources with Id containing <text>", "Sources with Id containing <text>"),
    ("Follow [the guide]({url}) to **enable** `mqtt`.", "Follow the guide to enable mqtt."),
    ("Şema. [Daha fazla.]( {url} #x)", "Şema. Daha fazla."),
    ("The ``async`` attribute of :ref:`forms <topics-forms>`", "The async attribute of forms"),
    ("Settings&hellip;", "Settings"),
    ("&lt;b&gt;Bold&lt;/b&gt;", "<b>Bold</b>"),
    # ellipsis, white space, composition, invisible characters, declension
    ("Loading...", "Loading"),
    ("  two\n\tlines\u00a0here ", "two lines here"),
    ("Cafe\u0301", "Café"),
    ("zero\u200bwidth\u200e", "zerowidth"),
    ("می\u200cخواهم", "می\u200cخواهم"),
    ("И=жерминаль|Р=жерминаля|Т=жерминалем", "жерминаль"),
    # what only looks like an access key
    ("AT&T and B&W", "AT&T and B&W"),
    ("&File", "File"),
    ("Set device_class of this new sensor to power", "Set device_class of this new sensor to power"),
    ("On/Off", "On/Off"),
]


@pytest.mark.parametrize(("text", "seen"), SEEN)
def test_text_is_what_a_reader_sees(text, seen):
    assert normalise(text) == seen


@pytest.mark.parametrize(
    ("text", "access_key", "seen"),
    [
        ("_Open", "underscore", "Open"),
        ("E_xport", "underscore", "Export"),
        ("文件(_F)", "underscore", "文件"),
        ("%(death_date)s died", "underscore", "died"),
        ("Keep the file_name and the host_name in this folder", "underscore", "Keep the file_name and the host_name in this folder"),
        ("Ignore the file_name here", "underscore", "Ignore the file_name here"),
        ("D_atei öffnen", "underscore", "Datei öffnen"),
        ("E&xit", "ampersand", "Exit"),
        ("ファイル（&F）", "ampersand", "ファイル"),
    ],
)
def test_access_keys_of_the_declared_toolkit_go(text, access_key, seen):
    assert normalise(text, access_key) == seen


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" %s ", "empty"),
        ("...", "empty"),
        ("12:30", "no words"),
        ("{a} → {b}", "no words"),
        ("/etc/hosts", "mostly syntax"),
        ("device_class", "mostly syntax"),
        ("plone.app.locales", "mostly syntax"),
        ("http://x.org/y", "mostly syntax"),
        ("--no-input", "mostly syntax"),
        ("{count, plural, one {# file", "broken ICU plural"),
    ],
)
def test_what_nobody_reads_is_dropped_with_its_reason(text, reason):
    assert normalise(text) == Drop(reason)


def test_dense_scripts_are_not_outweighed_by_one_identifier():
    assert isinstance(normalise("请先为这个新的传感器设置 device_class"), str)


@given(st.text())
def test_a_result_is_composed_single_spaced_and_has_letters(text):
    for function in (normalise, normalise_running_text):
        result = function(text)
        if isinstance(result, str):
            assert result == " ".join(result.split())
            assert any(character.isalpha() for character in result)
            assert unicodedata.is_normalized("NFC", result)


@given(st.text(alphabet="ab{}%s$<>&;_`*[]()…. #,plural other|=\\/@-\n", max_size=60))
def test_hostile_syntax_never_raises(text):
    normalise(text)


def test_running_text_keeps_its_own_markup():
    assert normalise_running_text("The  tag <b> is\nHTML.") == "The tag <b> is HTML."
    assert normalise_running_text(" \n") == Drop("empty")
