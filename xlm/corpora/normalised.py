"""The manifest, read and normalised once, for the two stages that need it.

Evaluation sets are drawn from this text before the corpus is cleaned, and the corpus is cleaned of
them afterwards, so both must see the very same strings. What a text shows by itself (markup only,
wrong script, a "translation" equal to its source) is settled here; what needs the other texts
(duplicates, held-out text) is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from xlm.corpora.documents import Document, SentencePair
from xlm.corpora.drops import DropCounts
from xlm.corpora.fold import pair_key
from xlm.corpora.manifest import FilesSource, Manifest, ParallelLinesSource, WheelSource, local_fingerprints, source_languages
from xlm.corpora.normalise import AccessKey, Drop, normalise, normalise_running_text
from xlm.corpora.pair_filters import pair_problem, text_problem
from xlm.corpora.readers.source import read_source
from xlm.corpora.records import RawPair, RawText
from xlm.corpora.sentences import sentence_starts
from xlm.corpora.store import CorpusWriter
from xlm.errors import UserError
from xlm.runs.fingerprint import code_fingerprint
from xlm.runs.progress import Progress
from xlm.runs.stage import Stage

STAGE = "normalised"


def normalised_corpus(manifest: Manifest, folder: Path, cache: Path) -> Path:
    """Fetch, read and normalise every text source of ``manifest`` into ``folder`` and return it; done once an input."""
    stage = normalised_stage(manifest, folder)
    if stage.is_done():
        return folder
    drops = DropCounts()
    with stage.write() as output:
        counts: Counter[str] = Counter()
        with CorpusWriter(output.folder) as writer, Progress("normalise", total=None, unit="texts") as progress:
            without_text: dict[str, list[str]] = {}
            for source in manifest.text_sources:
                normaliser = _Normaliser(source, writer, drops, counts, progress)
                normaliser.run(cache)
                silent = [language for language in source_languages(source) if language not in normaliser.languages]
                if silent:
                    without_text[source.name] = silent
        if not counts:
            raise UserError("the manifest's sources hold no usable text; see its formats and languages.")
        output.summary |= {"kept": dict(sorted(counts.items())), "dropped": drops.nested(), "without_text": without_text}
    return folder


def normalised_stage(manifest: Manifest, folder: Path) -> Stage:
    """Return the stage, whose inputs are the manifest, the local files it names and the code of this room."""
    inputs = {"manifest": manifest.fingerprint, "code": code_fingerprint("corpora"), **local_fingerprints(manifest)}
    return Stage(folder, STAGE, inputs)


def without_text_lines(without_text: Mapping[str, Sequence[str]]) -> list[str]:
    """Return one line a source and language of the manifest of which nothing was kept, so that none vanishes silently."""
    return [f"source '{source}' ({language}) gave no text" for source, languages in without_text.items() for language in languages]


class _Normaliser:
    """Normalise the records of one source, write what is kept and count what is not."""

    def __init__(
        self,
        source: WheelSource | FilesSource | ParallelLinesSource,
        writer: CorpusWriter,
        drops: DropCounts,
        counts: Counter[str],
        progress: Progress,
    ) -> None:
        self._source, self._writer, self._drops, self._counts, self._progress = source, writer, drops, counts, progress
        access_key: AccessKey = "none"
        if isinstance(source, WheelSource) and source.format is not None and source.format.kind == "gettext":
            access_key = source.format.access_key
        self.languages: set[str] = set()  # of which anything was kept
        self._catalogue_text = _remembering(lambda text: normalise(text, access_key))
        self._seen: set[tuple[str, str]] = set()
        self._seen_pairs: set[tuple[str, str, str]] = set()

    def run(self, cache: Path) -> None:
        """Read the source to its end."""
        for record in read_source(self._source, cache, self._drops):
            if isinstance(record, RawText):
                self._text(record)
            else:
                self._pair(record)
            self._progress.advance(note=self._source.name)

    def _text(self, record: RawText) -> None:
        running = record.nature == "running"
        text = normalise_running_text(record.text) if running else self._catalogue_text(record.text)
        problem = text.reason if isinstance(text, Drop) else text_problem(text, record.language)
        if isinstance(text, Drop) or problem is not None:
            self._drops.add(record.language, self._source.name, str(problem))
            return
        if not running:
            if (record.language, text) in self._seen:
                self._drops.add(record.language, self._source.name, "repeated in its source")
                return
            self._seen.add((record.language, text))
        identity = f"{self._source.name}:{record.id}" if running else f"{self._source.name}:{pair_key(text)}"
        starts = sentence_starts(text) if running else None
        self._writer.document(Document(identity, text, record.language, self._source.name, starts))
        self._counts[record.language] += 1
        self.languages.add(record.language)

    def _pair(self, record: RawPair) -> None:
        clean = normalise_running_text if record.nature == "running" else self._catalogue_text
        source, target = clean(record.source), clean(record.target)
        problem = _problem_of(source, "source") or _problem_of(target, "translation")
        if isinstance(source, str) and isinstance(target, str):
            identity = (record.target_language, source, target)
            if identity in self._seen_pairs:
                problem = "repeated in its source"
            else:
                self._seen_pairs.add(identity)
                problem = pair_problem(source, target, record.source_language, record.target_language)
            if problem is None:
                self._keep(record, source, target)
        if problem is not None:
            self._drops.add(record.target_language, self._source.name, problem)

    def _keep(self, record: RawPair, source: str, target: str) -> None:
        # English is what packages have in common, so its text is the key on whichever side it stands.
        key = pair_key(target if record.target_language == "en" else source)
        self._writer.pair(SentencePair(key, source, target, record.source_language, record.target_language, self._source.name))
        self._counts[f"{record.source_language}_{record.target_language}"] += 1
        self.languages |= {record.source_language, record.target_language}


def _problem_of(text: str | Drop, side: str) -> str | None:
    return f"{text.reason} ({side})" if isinstance(text, Drop) else None


def _remembering(function: Callable[[str], str | Drop]) -> Callable[[str], str | Drop]:
    """Remember results by text: catalogues say the same few words over and over."""
    known: dict[str, str | Drop] = {}

    def remembered(text: str) -> str | Drop:
        result = known.get(text)
        if result is None:
            result = known[text] = function(text)
        return result

    return remembered
