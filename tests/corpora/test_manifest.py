from pathlib import Path

import pytest

from xlm.corpora.manifest import FilesSource, Manifest, load_manifest, local_fingerprints, source_languages
from xlm.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
WHEEL = """sources:
  - name: some-texts
    kind: wheel
    version: "1.0"
    sha256: {sha256}
    licence: MIT
    homepage: https://example.org
    languages: {{de: de, zh-Hans: zh_CN}}
    format: {{kind: gettext, members: ["p/{{language}}.po"]}}
""".format(sha256="0a" * 32)


def load(tmp_path, text):
    path = tmp_path / "manifest.yaml"
    path.write_text(text, encoding="utf-8")
    return load_manifest(path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("licence: MIT", "license: MIT"), r"manifest\.yaml:6: unknown key 'sources\.0\.license' \(did you mean 'licence'\?\)"),
        (("    licence: MIT\n", ""), r"manifest\.yaml:2: key 'sources\.0\.licence' is missing"),
        (("licence: MIT", 'licence: ""'), r"manifest\.yaml:6: .*licence.*at least 1 character"),
        (("{de: de,", "{german: de,"), r"manifest\.yaml:8: .*languages\.german.*pattern"),
        (("0a" * 32, "abc"), r"manifest\.yaml:5: .*sha256.*pattern"),
        (("kind: wheel", "kind: whele"), r"manifest\.yaml:2: .*'wheel', 'files', 'parallel_lines'"),
        (("kind: gettext", "kind: fluent"), r"manifest\.yaml:9: .*'gettext', 'json_catalogues', 'cldr', 'wiki_summaries'"),
        (("p/{language}.po", "p/de.po"), r"manifest\.yaml:9: .*members"),
        (("name: some-texts", "name: --index-url=x"), r"manifest\.yaml:2: .*name.*pattern"),
        (('    format: {kind: gettext, members: ["p/{language}.po"]}\n', ""), "has role text but no format"),
        (("kind: gettext, members: [", "kind: json_catalogues, members: "), "not valid YAML"),
    ],
)
def test_each_mistake_is_one_sentence_with_file_and_line(tmp_path, change, sentence):
    assert change[0] in WHEEL
    with pytest.raises(UserError, match=sentence) as error:
        load(tmp_path, WHEEL.replace(*change))
    assert "\n" not in str(error.value)


def test_names_are_distinct(tmp_path):
    with pytest.raises(UserError, match="two sources are named 'some-texts'"):
        load(tmp_path, WHEEL + WHEEL.removeprefix("sources:\n"))


@pytest.mark.parametrize("kind", ["json_catalogues", "cldr"])
def test_translations_beside_english_need_it(tmp_path, kind):
    text = WHEEL.replace('kind: gettext, members: ["p/{language}.po"]', f'kind: {kind}, members: "p/{{language}}.json"')
    with pytest.raises(UserError, match="needs 'en' among its languages"):
        load(tmp_path, text)


def test_the_fingerprint_follows_every_value(tmp_path):
    first = load(tmp_path, WHEEL)
    assert first.fingerprint == load(tmp_path, WHEEL + "# a comment\n").fingerprint
    assert first.fingerprint != load(tmp_path, WHEEL.replace("1.0", "1.1")).fingerprint


def test_sources_are_found_by_name(tmp_path):
    manifest = load(tmp_path, WHEEL)
    assert manifest.source("some-texts").name == "some-texts"
    assert manifest.wheel("some-texts").version == "1.0"
    with pytest.raises(UserError, match=r"no source 'some-text' \(did you mean 'some-texts'\?\)"):
        manifest.source("some-text")


LOCAL = """sources:
  - {{name: mine, kind: files, licence: own, paths: ["{path}"], language: sw, format: {{kind: text}}{more}}}
"""


def test_local_files_are_fingerprinted_by_content_and_checked(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("Habari", encoding="utf-8")
    manifest = load(tmp_path, LOCAL.format(path=path, more=""))
    before = local_fingerprints(manifest)
    path.write_text("Habari ya asubuhi", encoding="utf-8")
    assert local_fingerprints(manifest) != before
    with pytest.raises(UserError, match=f"declares SHA-256 {'1' * 64}, but this file has {local_fingerprints(manifest)['mine[0]']}"):
        local_fingerprints(load(tmp_path, LOCAL.format(path=path, more=f", sha256: ['{'1' * 64}']")))
    with pytest.raises(UserError, match="has 1 paths and 2 checksums"):
        load(tmp_path, LOCAL.format(path=path, more=f", sha256: ['{'1' * 64}', '{'2' * 64}']"))
    path.unlink()
    with pytest.raises(UserError, match="cannot be read"):
        local_fingerprints(manifest)


def test_a_language_is_not_paired_with_itself(tmp_path):
    text = "sources:\n  - {name: p, kind: parallel_lines, licence: own, source: a, target: b, source_language: en, target_language: en}\n"
    with pytest.raises(UserError, match="pairs 'en' with itself"):
        load(tmp_path, text)


@pytest.mark.parametrize("name", ["quickstart", "smoke"])
def test_the_manifests_of_this_project_hold(name):
    manifest = load_manifest(ROOT / "corpora_manifests" / f"{name}.yaml")
    wanted = {"en", "fr", "de", "es", "ru", "zh-Hans"} | ({"ja", "tr", "el", "vi", "ar", "hi"} if name == "quickstart" else set())
    assert set(manifest.languages) == wanted
    assert manifest.languages[0] == "en"
    task = manifest.wheel("home-assistant-intents")
    assert task.languages["zh-Hans"] == "zh-CN"
    assert task not in manifest.text_sources
    assert set(task.languages) == wanted
    assert all(source_languages(source)[0] == "en" for source in manifest.text_sources)


def test_a_manifest_may_be_built_in_code():
    source = FilesSource(name="x", kind="files", licence="own", paths=(Path("a"),), format={"kind": "parquet"}, language="sw")
    assert Manifest(sources=(source,)).languages == ("sw",)


EXTENDING = WHEEL.replace("name: some-texts", "name: more-texts")


def test_a_manifest_may_extend_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = load(tmp_path, WHEEL)
    (tmp_path / "base.yaml").write_text(WHEEL, encoding="utf-8")
    both = load(tmp_path, "extends: base.yaml\n" + EXTENDING)
    assert [source.name for source in both.sources] == ["some-texts", "more-texts"]
    assert both.fingerprint == load(tmp_path, WHEEL + EXTENDING.removeprefix("sources:\n")).fingerprint != base.fingerprint
    replaced = load(tmp_path, "extends: base.yaml\n" + WHEEL.replace("de: de,", "fr: fr,"))
    assert [tuple(source.languages) for source in replaced.sources] == [("fr", *list(base.sources[0].languages)[1:])]


def test_manifests_that_extend_each_other_are_one_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text("extends: manifest.yaml\n" + WHEEL, encoding="utf-8")
    with pytest.raises(UserError, match=r"in a circle: manifest.yaml -> base.yaml -> manifest.yaml"):
        load(tmp_path, "extends: base.yaml\n" + EXTENDING)
    with pytest.raises(UserError, match="does not exist"):
        load(tmp_path, "extends: nowhere.yaml\n" + EXTENDING)
