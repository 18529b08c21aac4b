import json

import pytest

from xlm.corpora.archive import Archive
from xlm.corpora.drops import DropCounts
from xlm.corpora.manifest import WheelSource, WikiSummariesFormat
from xlm.corpora.readers.wiki_summaries import read_wiki_summaries
from xlm.corpora.records import RawText
from xlm.errors import UserError

LAYOUT = WikiSummariesFormat(kind="wiki_summaries", members="w/summaries_{language}.json")


def read(tmp_path, content, language="en"):
    import zipfile

    with zipfile.ZipFile(tmp_path / "w.whl", "w") as archive:
        archive.writestr("w/summaries_en-us.json", content)
    source = WheelSource(
        name="wiki", kind="wheel", version="1", licence="CC", homepage="-", sha256="0a" * 32, languages={language: "en-us"}, format=LAYOUT
    )
    drops = DropCounts()
    with Archive(tmp_path / "w.whl") as archive:
        return list(read_wiki_summaries(source, LAYOUT, archive, drops)), drops.by_reason()


def test_each_article_is_one_running_text(tmp_path):
    articles = {"Whale": {"extract": "Whales are mammals. They swim.", "topic": "Animals"}, "Empty": {"extract": ""}, "Odd": "text"}
    records, dropped = read(tmp_path, json.dumps(articles))
    assert records == [RawText("Whale", "Whales are mammals. They swim.", "en", "running")]
    assert dropped == {"no text": 2}


@pytest.mark.parametrize(("content", "sentence"), [("{\n,", r"summaries_en-us\.json:2: not valid JSON"), ("[]", "JSON object of titles")])
def test_other_json_is_named(tmp_path, content, sentence):
    with pytest.raises(UserError, match=sentence):
        read(tmp_path, content)
