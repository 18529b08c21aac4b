"""Sentence templates of one language, read out of the home-assistant-intents wheel.

The wheel is read as an archive, never installed or imported; `hassil` parses its templates
(alternatives, options, rules and slot lists). `hassil` is an optional extra: only this file and the
sampler know it.
"""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from xlm.errors import UserError, suggest
from xlm.seeding import key_digest

if TYPE_CHECKING:
    from hassil.expression import Expression
    from hassil.intents import Intents, SlotList

DATA_FOLDER = "home_assistant_intents/data/"
# Where the package names a language otherwise than BCP-47 with its usual script.
PACKAGE_CODES = {"zh-Hans": "zh-CN", "zh-Hant": "zh-TW"}
MAX_MEMBER_BYTES = 64 << 20


@dataclass(frozen=True)
class Template:
    """One sentence template of an intent; ``expression`` is hassil's parse of ``text``."""

    id: str
    label: str
    text: str
    expression: Expression = field(repr=False, compare=False)


@dataclass(frozen=True)
class Grammar:
    """Everything a language's templates refer to: ``rules`` by name (parsed), ``lists`` by name (hassil slot lists)."""

    language: str
    templates: tuple[Template, ...]
    rules: Mapping[str, Expression] = field(repr=False)
    lists: Mapping[str, SlotList] = field(repr=False)
    dropped: Mapping[str, int]


def package_code(language: str) -> str:
    """Return the package's name of a BCP-47 language."""
    return PACKAGE_CODES.get(language, language)


def packaged_languages(wheel: Path) -> list[str]:
    """Return the package's language codes, sorted."""
    with _open(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(DATA_FOLDER) and name.endswith(".json")]
    return sorted(Path(name).stem for name in names)


def load_grammar(wheel: Path, language: str, code: str | None = None) -> Grammar:
    """Read and parse a language's templates; ``code`` is the package's name of the language, where it is known.

    A template text that stands under two intents (told apart by context only, which a classifier never
    sees) is dropped, and so is a repeated one; both are counted in ``Grammar.dropped``.

    Raises UserError where the wheel lacks the language or hassil is not installed.
    """
    hassil = import_hassil()
    data = _language_data(wheel, language, code or package_code(language))
    try:
        intents = hassil.Intents.from_dict(data)
        parsed = {(name, text): expression for name, text, expression in _sentences(intents)}
    except (KeyError, TypeError, ValueError, hassil.parser.ParseError) as error:
        sentence = f"the templates of '{language}' cannot be parsed ({error}); use the version named in the manifest."
        raise UserError(sentence, file=wheel) from None
    total = sum(len(block.sentence_texts) for intent in intents.intents.values() for block in intent.data)
    owners = Counter(text for _, text in parsed)
    kept = {key: expression for key, expression in parsed.items() if owners[key[1]] == 1}
    dropped = {"template repeated": total - len(parsed), "template under two intents": len(parsed) - len(kept)}
    templates = tuple(Template(_template_id(language, label, text), label, text, expression) for (label, text), expression in kept.items())
    return Grammar(
        language=language,
        templates=templates,
        rules={name: rule.expression for name, rule in intents.expansion_rules.items()},
        lists=intents.slot_lists,
        dropped={reason: count for reason, count in dropped.items() if count},
    )


def import_hassil() -> ModuleType:
    """Import hassil, or say how to install it."""
    try:
        import hassil
        import hassil.numbers
        import hassil.parser
    except ImportError:
        raise UserError(
            "the intents task samples its sentences with the library 'hassil', which is not installed; run: pip install 'xlm[intents]'."
        ) from None
    module: ModuleType = hassil
    return module


def _language_data(wheel: Path, language: str, code: str) -> dict[str, Any]:
    available = packaged_languages(wheel)
    if code not in available:
        raise UserError(
            f"tasks.languages asks for '{language}', for which this package has no sentence templates"
            f"{suggest(code, available)}; it has {', '.join(available)}.",
            file=wheel,
        )
    with _open(wheel) as archive:
        member = archive.getinfo(f"{DATA_FOLDER}{code}.json")
        if member.file_size > MAX_MEMBER_BYTES:
            raise UserError(f"'{member.filename}' unpacks to {member.file_size:,} bytes, above {MAX_MEMBER_BYTES:,}.", file=wheel)
        try:
            data = json.loads(archive.read(member))
        except (ValueError, zipfile.BadZipFile):
            raise UserError(f"'{member.filename}' is damaged; remove the wheel so that it is fetched again.", file=wheel) from None
    if not isinstance(data, dict):
        raise UserError(f"'{member.filename}' holds no templates; use the version named in the manifest.", file=wheel)
    return data


def _open(wheel: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(wheel)
    except (OSError, zipfile.BadZipFile):
        raise UserError("this wheel cannot be opened; remove it so that it is fetched again.", file=wheel) from None


def _sentences(intents: Intents) -> list[tuple[str, str, Expression]]:
    return [
        (name, sentence.text, sentence.expression)
        for name, intent in intents.intents.items()
        for block in intent.data
        for sentence in block.sentences
    ]


def _template_id(language: str, label: str, text: str) -> str:
    return f"{language}:{label}:{key_digest(language, label, text, size_bytes=5).hex()}"
