import pytest

from xlm.corpora.script import script_code, script_share, wrong_script


@pytest.mark.parametrize(
    ("text", "language", "wrong"),
    [
        ("Настройки", "ru", False),
        ("Settings", "ru", True),
        ("Home Assistant 的设置", "zh-Hans", False),
        ("Home Assistant settings", "zh-Hans", True),
        ("サーバー", "ja", False),
        ("設定", "ja", False),
        ("설정", "ja", True),
        ("Ρυθμίσεις", "el", False),
        ("Настройки", "el", True),
        ("إعدادات", "ar", False),
        ("सेटिंग्स", "hi", False),
        ("Cài đặt", "vi", False),
        ("Настройки", "tr", True),
        ("12 %", "ru", False),
        ("anything", "xx", False),
        ("Подешавања", "sr-Cyrl", False),
        ("Podešavanja", "sr-Latn", False),
        ("Podešavanja", "sr-Cyrl", True),
    ],
)
def test_a_text_must_be_in_its_language_script(text, language, wrong):
    assert wrong_script(text, language) is wrong


def test_share_counts_letters_only():
    assert script_share("ab — вг 12", "ru") == 0.5
    assert script_code("zh-Hans") == "Hans"
    assert script_code("xx") is None
