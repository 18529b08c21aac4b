"""Encyclopaedia extracts: JSON that maps a title to an object with a text of a few sentences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from xlm.corpora.archive import Archive
from xlm.corpora.drops import DropCounts
from xlm.corpora.manifest import WheelSource, WikiSummariesFormat
from xlm.corpora.records import RawText, Record
from xlm.errors import UserError


def read_wiki_summaries(source: WheelSource, layout: WikiSummariesFormat, archive: Archive, drops: DropCounts) -> Iterator[Record]:
    """Yield one running text an article; articles without a text are counted."""
    for language in source.languages:
        for title, article in _articles(source, layout, archive, language):
            text = article.get(layout.text_field) if isinstance(article, dict) else None
            if isinstance(text, str) and text:
                yield RawText(title, text, language, "running")
            else:
                drops.add(language, source.name, "no text")


def article_topics(source: WheelSource, layout: WikiSummariesFormat, archive: Archive, language: str) -> dict[str, str]:
    """Return the topic of each article by its title, in the words of its language; articles without one are left out."""
    found = {}
    for title, article in _articles(source, layout, archive, language):
        topic = article.get(layout.topic_field) if isinstance(article, dict) else None
        if isinstance(topic, str) and topic:
            found[title] = topic
    return found


def _articles(source: WheelSource, layout: WikiSummariesFormat, archive: Archive, language: str) -> Iterator[tuple[str, Any]]:
    code = source.languages[language]
    members = archive.members(layout.members, code)
    if not members:
        raise UserError(f"source '{source.name}' has no file for '{language}' (code '{code}', {layout.members}).", file=archive.path)
    for member in members:
        where = f"{archive.path}/{member}"
        try:
            data = json.loads(archive.read_text(member))
        except json.JSONDecodeError as error:
            raise UserError("not valid JSON.", file=where, line=error.lineno) from None
        if not isinstance(data, dict):
            raise UserError("a JSON object of titles is expected.", file=where)
        yield from data.items()
