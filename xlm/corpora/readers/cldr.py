"""Names out of the Unicode CLDR, as Babel's wheel carries them: languages, territories, currencies, units, times.

Babel keeps a locale as a pickle. A pickle can name any function to be called; here every name it gives becomes a
class that does nothing, so that reading runs nothing of the file's choosing, and what is left are dicts and strings.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from xlm.corpora.archive import Archive
from xlm.corpora.drops import DropCounts
from xlm.corpora.manifest import CldrFormat, WheelSource
from xlm.corpora.records import RawPair, RawText, Record
from xlm.errors import UserError

Path = tuple[str, ...]
# What is a name or a phrase. Patterns of numbers and dates, symbols and lists say nothing in words.
SECTIONS = frozenset(
    [
        *("currency_names", "currency_names_plural", "date_fields", "day_periods", "days", "languages", "meta_zones", "months"),
        *("quarters", "scripts", "territories", "time_zones", "unit_display_names", "unit_patterns", "variants"),
    ]
)
# Abbreviations ("Su", "mi."), wherever they stand in a path: "short" itself, or "day-short".
_SHORT = ("short", "narrow", "abbreviated")


def read_cldr(source: WheelSource, layout: CldrFormat, archive: Archive, drops: DropCounts) -> Iterator[Record]:
    """Yield each English name once, and a pair for every place of the data that English and another language fill."""
    english = _names(source, layout, archive, "en")
    for text in dict.fromkeys(english.values()):
        yield RawText(f"name:{text}", text, "en")
    for language in source.languages:
        if language == "en":
            continue
        for path, text in _names(source, layout, archive, language).items():
            if path in english:
                yield RawPair(english[path], text, "en", language)
            else:  # the plural forms of Arabic or Russian, and what English does not name
                drops.add(language, source.name, "no English beside it")


def _names(source: WheelSource, layout: CldrFormat, archive: Archive, language: str) -> dict[Path, str]:
    code = source.languages[language]
    members = archive.members(layout.members, code)
    if len(members) != 1:
        raise UserError(
            f"source '{source.name}' has {len(members)} files for '{language}' (code '{code}', {layout.members}); one is expected.",
            file=archive.path,
        )
    data = _parse(archive, members[0])
    return dict(_flatten({name: data[name] for name in sorted(SECTIONS & data.keys())}))


def _flatten(data: Mapping[Any, Any], above: Path = ()) -> Iterator[tuple[Path, str]]:
    for key, value in data.items():
        name = str(key)
        if name.split("-")[-1] in _SHORT:
            continue
        if isinstance(value, dict):
            yield from _flatten(value, (*above, name))
        elif isinstance(value, str):
            yield (*above, name), value


class _Inert:
    """What stands for every class a pickle names: takes anything, does nothing."""

    def __init__(self, *arguments: object, **options: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


class _NothingCalled(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[_Inert]:
        """Return the class that does nothing, whatever is asked for."""
        return _Inert


def _parse(archive: Archive, member: str) -> dict[Any, Any]:
    try:
        data = _NothingCalled(io.BytesIO(archive.read(member))).load()
    except Exception as error:  # noqa: BLE001  a damaged pickle can fail in any way
        raise UserError(f"this locale is damaged ({type(error).__name__}).", file=f"{archive.path}/{member}") from None
    if not isinstance(data, dict):
        raise UserError("a dict of names is expected in a locale.", file=f"{archive.path}/{member}")
    return data
