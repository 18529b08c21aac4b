import builtins
import zipfile

import pytest

from xlm.errors import UserError
from xlm.tasks.grammar import load_grammar, package_code, packaged_languages


def test_templates_are_read_with_their_labels(intents_wheel):
    grammar = load_grammar(intents_wheel, "en")
    assert {template.label for template in grammar.templates} == {"TurnOn", "SetBrightness", "Announce", "AddItem", "Open"}
    assert len({template.id for template in grammar.templates}) == len(grammar.templates)
    assert set(grammar.rules) == {"turn", "make"}
    assert set(grammar.lists) == {"brightness", "level", "message", "shopping_list_item"}


def test_repeated_and_ambiguous_templates_are_dropped_and_counted(intents_wheel):
    grammar = load_grammar(intents_wheel, "en")
    assert grammar.dropped == {"template repeated": 1, "template under two intents": 2}
    assert "open {name}" not in {template.text for template in grammar.templates}


def test_ids_do_not_depend_on_what_else_is_in_the_package(intents_wheel, tmp_path):
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr(
            "home_assistant_intents/data/de.json",
            '{"language": "de", "intents": {"TurnOn": {"data": [{"sentences": ["mach {name} an"]}]}}}',
        )
    ids = {template.text: template.id for template in load_grammar(intents_wheel, "de").templates}
    (alone,) = load_grammar(other, "de").templates
    assert alone.id == ids["mach {name} an"]
    assert alone.id.startswith("de:TurnOn:")


def test_languages_go_by_bcp47(intents_wheel):
    assert package_code("zh-Hans") == "zh-CN"
    assert packaged_languages(intents_wheel) == ["de", "en", "zh-CN"]
    assert load_grammar(intents_wheel, "zh-Hans").language == "zh-Hans"
    assert load_grammar(intents_wheel, "zh-Hans", "zh-CN").templates


def test_a_language_the_package_lacks_is_named_with_those_there_are(intents_wheel):
    with pytest.raises(UserError, match=r"asks for 'sw', .*it has de, en, zh-CN"):
        load_grammar(intents_wheel, "sw")


def test_a_broken_archive_or_template_is_a_sentence(tmp_path):
    path = tmp_path / "broken.whl"
    path.write_bytes(b"no archive")
    with pytest.raises(UserError, match="cannot be opened"):
        load_grammar(path, "en")
    for content, message in (("{", "is damaged"), ("[]", "holds no templates"), ('{"language": "en"}', "cannot be parsed")):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("home_assistant_intents/data/en.json", content)
        with pytest.raises(UserError, match=message):
            load_grammar(path, "en")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "home_assistant_intents/data/en.json", '{"language": "en", "intents": {"A": {"data": [{"sentences": ["(open"]}]}}}'
        )
    with pytest.raises(UserError, match="templates of 'en' cannot be parsed"):
        load_grammar(path, "en")


def test_without_hassil_the_sentence_says_how_to_install_it(intents_wheel, monkeypatch):
    real_import = builtins.__import__

    def no_hassil(name, *arguments, **keywords):
        if name.startswith("hassil"):
            raise ImportError(name)
        return real_import(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", no_hassil)
    with pytest.raises(UserError, match=r"pip install 'xlm\[intents\]'"):
        load_grammar(intents_wheel, "en")
