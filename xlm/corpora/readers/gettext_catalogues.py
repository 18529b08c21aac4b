"""Catalogues of gettext (``.po``, ``.mo``), parsed by polib.

Left out and counted: what translators marked fuzzy (a guess nobody confirmed), what they have not
translated, and obsolete entries. Plural entries give a pair for one and a pair for many; which of a
language's forms these are, its own ``Plural-Forms`` header says (Arabic has six, and its first is zero).
"""

from __future__ import annotations

import gettext
import re
import struct
import tempfile
from collections.abc import Iterator

import polib

from xlm.corpora.archive import Archive
from xlm.corpora.drops import DropCounts
from xlm.corpora.manifest import GettextFormat, WheelSource
from xlm.corpora.records import RawPair, RawText, Record
from xlm.errors import UserError

_DEFAULT = re.compile(r'Default:\s*"(.*)"\s*$', re.DOTALL)
_COMMENT_LINE_BREAK = re.compile(r'"\s*\n\s*"')
_PLURAL_RULE = re.compile(r"plural\s*=\s*([^;]+)")
# The number that stands for "many" when a form is chosen for an English plural.
MANY = 10


def read_gettext(source: WheelSource, layout: GettextFormat, archive: Archive, drops: DropCounts) -> Iterator[Record]:
    """Yield the pairs of every language of a source, and once each English string and each further plural form."""
    english_seen: set[str] = set()
    for language, code in source.languages.items():
        if language == "en":
            continue
        members = [name for pattern in layout.members for name in archive.members(pattern, code)]
        if not members:
            raise UserError(
                f"source '{source.name}' has no catalogue for '{language}' (code '{code}', {', '.join(layout.members)}).", file=archive.path
            )
        for member in members:
            for record in _read_catalogue(_parse(archive, member), language, layout, source.name, drops):
                if isinstance(record, RawPair) or record.language != "en":
                    yield record
                elif record.text not in english_seen:
                    english_seen.add(record.text)
                    yield record


def _parse(archive: Archive, member: str) -> polib.POFile | polib.MOFile:
    try:
        if member.endswith(".po"):
            return polib.pofile(archive.read_text(member))
        # polib reads .mo files from a path only. The name of this one is ours, not the archive's.
        with tempfile.NamedTemporaryFile(suffix=".mo") as copy:
            copy.write(archive.read(member))
            copy.flush()
            return polib.mofile(copy.name)
    except (OSError, ValueError, IndexError, struct.error) as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"this catalogue is damaged ({problem}).", file=f"{archive.path}/{member}") from None


def _read_catalogue(
    catalogue: polib.POFile | polib.MOFile, language: str, layout: GettextFormat, source: str, drops: DropCounts
) -> Iterator[Record]:
    form_of = _plural_rule(str(catalogue.metadata.get("Plural-Forms", "")))
    for entry in catalogue:
        if entry.obsolete:
            drops.add(language, source, "obsolete")
            continue
        english = _english(entry, layout)
        yield RawText(f"msgid:{english}", english, "en")
        # An .mo entry has neither flags nor comments: compiling leaves them out, and fuzzy entries with them.
        if "fuzzy" in getattr(entry, "flags", ()):
            drops.add(language, source, "fuzzy")
        elif entry.msgid_plural:
            forms = {int(index): text for index, text in entry.msgstr_plural.items() if text}
            yield RawText(f"msgid:{entry.msgid_plural}", entry.msgid_plural, "en")
            yield from _plural_pairs(english, entry.msgid_plural, forms, form_of, language, source, drops)
        elif entry.msgstr:
            yield RawPair(english, entry.msgstr, "en", language)
        else:
            drops.add(language, source, "untranslated")


def _english(entry: polib.POEntry | polib.MOEntry, layout: GettextFormat) -> str:
    if layout.english == "default_comment":
        found = _DEFAULT.search(getattr(entry, "comment", None) or "")
        if found:
            # The text of an extracted comment keeps the escapes of the catalogue's syntax.
            return str(polib.unescape(polib.unescape(_COMMENT_LINE_BREAK.sub("", found[1]))))
    return str(entry.msgid)


def _plural_pairs(
    one: str, many: str, forms: dict[int, str], form_of: tuple[int, int], language: str, source: str, drops: DropCounts
) -> Iterator[Record]:
    if not forms:
        drops.add(language, source, "untranslated")
        return
    one_form, many_form = (index if index in forms else max(forms) for index in form_of)
    yield RawPair(one, forms[one_form], "en", language)
    yield RawPair(many, forms[many_form], "en", language)
    for index, text in forms.items():
        if index not in (one_form, many_form):
            yield RawText(f"form {index}:{many}", text, language)


def _plural_rule(header: str) -> tuple[int, int]:
    """Return the indices of the forms for 1 and for `MANY` by a ``Plural-Forms`` header; English's rule if it is broken."""
    found = _PLURAL_RULE.search(header)
    if found:
        try:
            rule = gettext.c2py(found[1].strip())
            return int(rule(1)), int(rule(MANY))
        except (ValueError, RecursionError, OverflowError, ZeroDivisionError):
            pass
    return 0, 1
