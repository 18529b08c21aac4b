import json

import pytest

from xlm.config.recipe import TopicsSection
from xlm.corpora.documents import Document
from xlm.corpora.manifest import Manifest
from xlm.errors import UserError
from xlm.tasks.topics import CLASSES, draw_topics, read_topics

SECTION = TopicsSection(source="wiki", languages=("en", "es"), train_per_class=3, dev_per_class=1, test_per_class=2)


def documents(language, each=8):
    names = [f"{label} {letter}" for label in CLASSES for letter in "abcdefgh"[:each]]
    return [Document(f"wiki:{name}", f"About {name} in {language}.", language, "wiki") for name in names]


def classes(language):
    return {document.id: document.id.removeprefix("wiki:").rsplit(" ", 1)[0] for document in documents(language)}


def manifest(tmp_path, **changes):
    source = {
        "name": "wiki", "kind": "wheel", "version": "1", "licence": "CC", "homepage": "-", "sha256": "0a" * 32,
        "languages": {"en": "en-us", "es": "es-es"}, "format": {"kind": "wiki_summaries", "members": "d/{language}.json"},
    } | changes  # fmt: skip
    return Manifest.model_validate({"sources": [source]})


@pytest.fixture
def wheel(tmp_path):
    import zipfile

    path = tmp_path / "wiki-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        english = {"Ada": {"extract": "x", "topic": "People"}, "Cell": {"extract": "x", "topic": "Biology"}, "None": {"extract": "x"}}
        archive.writestr("d/en-us.json", json.dumps(english))
        archive.writestr("d/es-es.json", json.dumps({"Grafo": {"extract": "x", "topic": "Matemáticas"}}))
    return path


def test_classes_have_one_name_in_every_language(tmp_path, wheel):
    assert read_topics(manifest(tmp_path), wheel, SECTION) == {"en": {"wiki:Ada": "people"}, "es": {"wiki:Grafo": "mathematics"}}


@pytest.mark.parametrize(
    ("languages", "changes", "sentence"),
    [
        (("en", "de"), {}, r"languages asks for 'de'; topics are known in en, es"),
        (("en", "fr"), {}, r"languages asks for 'fr'; topics are known in en, es"),
        (("es", "fr"), {}, r"languages has no 'en'"),
        (("en", "es"), {"format": {"kind": "gettext", "members": ["d/{language}.po"]}}, "which has no topics"),
    ],
)
def test_what_is_not_there_is_one_sentence(tmp_path, wheel, languages, changes, sentence):
    with pytest.raises(UserError, match=sentence):
        read_topics(manifest(tmp_path, **changes), wheel, SECTION.model_copy(update={"languages": languages}))


def test_english_has_three_splits_and_others_are_only_tested():
    english = draw_topics("en", documents("en"), classes("en"), SECTION, 3)
    assert english.split_counts() == {"dev": 7, "test": 14, "train": 21}
    assert english.dropped == {"not drawn": 14}
    spanish = draw_topics("es", documents("es"), classes("es"), SECTION, 3)
    assert spanish.split_counts() == {"test": 14}
    assert len({article.id for article in english.articles}) == 42
    assert all(article.template == article.id for article in english.articles)
    assert english == draw_topics("en", documents("en")[::-1], classes("en"), SECTION, 3)
    assert english != draw_topics("en", documents("en"), classes("en"), SECTION, 4)


def test_repeated_texts_and_articles_of_no_class_are_left_out():
    more = [Document("wiki:again", documents("en")[0].text.upper(), "en", "wiki"), Document("other:x", "Another.", "en", "other")]
    drawn = draw_topics("en", [*documents("en"), *more], {**classes("en"), "wiki:again": "arts"}, SECTION, 3)
    assert drawn.dropped == {"not drawn": 14, "repeated": 1}
    assert "other:x" not in {article.id for article in drawn.articles}


def test_a_class_without_articles_enough_is_named():
    with pytest.raises(UserError, match=r"'en' has 3 articles about arts; 4 are needed: lower tasks.topics.test_per_class"):
        draw_topics("en", documents("en", 3), classes("en"), SECTION, 3)
