"""Translations in JSON: one file a component and language, keys nested or flat, English beside. Home Assistant's and Kolibri's.

In Home Assistant's a value may point to another (``[%key:component::light::title%]``). References are resolved within
the same language, in the file of the component they name; one whose target is not in the archive is dropped and
counted, since ``common`` strings are not published.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from xlm.corpora.archive import Archive
from xlm.corpora.drops import DropCounts
from xlm.corpora.manifest import JsonCataloguesFormat, WheelSource
from xlm.corpora.records import RawPair, RawText, Record
from xlm.errors import UserError

Path = tuple[str, ...]
Catalogue = dict[Path, str]
_REFERENCE = re.compile(r"\[%key:([^%\]]+)%\]")
_MAX_REFERENCES = 8


def read_json_catalogues(source: WheelSource, layout: JsonCataloguesFormat, archive: Archive, drops: DropCounts) -> Iterator[Record]:
    """Yield a pair for every key that English and another language share, and every English string once."""
    english = _Language(source, layout, archive, "en")
    if not english.components:
        raise UserError(f"source '{source.name}' has no English files ({layout.members}).", file=archive.path)
    seen: set[str] = set()
    resolved: dict[str, Catalogue] = {}
    for component in english.components:
        resolved[component] = dict(_resolved(english, component, "en", source.name, drops))
        for text in resolved[component].values():
            if text not in seen:
                seen.add(text)
                yield RawText(f"{component}:{text}", text, "en")
    for language in source.languages:
        if language == "en":
            continue
        other = _Language(source, layout, archive, language)
        if not other.components:
            raise UserError(f"source '{source.name}' has no files for '{language}' ({layout.members}).", file=archive.path)
        for component in other.components:
            beside = resolved.get(component, {})
            for path, text in _resolved(other, component, language, source.name, drops):
                if path in beside:
                    yield RawPair(beside[path], text, "en", language)
                elif path not in english.components.get(component, {}):
                    drops.add(language, source.name, "no English beside it")


class _Language:
    """Every component's strings in one language; component names are what ``*`` stands for in the member pattern."""

    def __init__(self, source: WheelSource, layout: JsonCataloguesFormat, archive: Archive, language: str) -> None:
        code = source.languages[language]
        prefix, star, rest = layout.members.replace("{language}", code).partition("*")
        self.components: dict[str, Catalogue] = {}
        for member in archive.members(layout.members, code):
            component = member[len(prefix) : len(member) - len(rest)] if star else ""
            self.components[component] = dict(_flatten(_parse(archive, member), archive, member))

    def resolve(self, text: str, depth: int = 0) -> str | None:
        """Return ``text`` with its references replaced, or None where one leads nowhere."""
        if depth > _MAX_REFERENCES:
            return None
        pieces = []
        position = 0
        for found in _REFERENCE.finditer(text):
            kind, *path = found[1].split("::")
            target = self.components.get(path[0], {}).get(tuple(path[1:])) if kind == "component" and path else None
            inner = self.resolve(target, depth + 1) if target is not None else None
            if inner is None:
                return None
            pieces += [text[position : found.start()], inner]
            position = found.end()
        return "".join([*pieces, text[position:]])


def _resolved(catalogues: _Language, component: str, language: str, source: str, drops: DropCounts) -> Iterator[tuple[Path, str]]:
    for path, text in catalogues.components[component].items():
        whole = catalogues.resolve(text) if "[%key:" in text else text
        if whole is None:
            drops.add(language, source, "unresolved reference")
        else:
            yield path, whole


def _parse(archive: Archive, member: str) -> dict[str, Any]:
    try:
        data = json.loads(archive.read_text(member))
    except (json.JSONDecodeError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        raise UserError("not valid JSON.", file=f"{archive.path}/{member}", line=line) from None
    if not isinstance(data, dict):
        raise UserError("a JSON object is expected in a translation file.", file=f"{archive.path}/{member}")
    return data


def _flatten(data: dict[str, Any], archive: Archive, member: str, above: Path = ()) -> Iterator[tuple[Path, str]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _flatten(value, archive, member, (*above, key))
        elif isinstance(value, str):
            yield (*above, key), value
        else:
            where = ".".join((*above, key))
            raise UserError(f"'{where}' holds a {type(value).__name__}; strings and objects are expected.", file=f"{archive.path}/{member}")
