"""Train one shared vocabulary on language-balanced text, or take over one that exists, and measure it: corpus/ → vocabulary/."""

from __future__ import annotations

import shutil
from pathlib import Path

import sentencepiece

from xlm.config.strict import load_config
from xlm.errors import exits_cleanly
from xlm.runs.cli import parse_invocation, recipe_parser
from xlm.runs.fingerprint import code_fingerprint, fingerprint
from xlm.runs.folder import RunFolder
from xlm.runs.progress import track
from xlm.runs.stage import Stage, StageOutput, read_record, write_json
from xlm.vocab.coverage import coverage_table, measure_coverage
from xlm.vocab.sampling import TextSample, sample_text, thin_texts
from xlm.vocab.spec import VocabularySpec
from xlm.vocab.train import train_vocabulary
from xlm.vocab.vocabulary import DESCRIPTION_FILE, MODEL_FILE, Vocabulary

# Enough for rates to three digits; a large corpus is not encoded whole only to be measured.
COVERAGE_CHARACTERS_PER_LANGUAGE = 2_000_000


@exits_cleanly
def main() -> None:
    """Build the vocabulary of a recipe, unless it is there already."""
    invocation = parse_invocation(recipe_parser(__doc__ or ""))
    folder = invocation.folder
    source = invocation.recipe.vocabulary
    if source.is_dir():
        take_over(folder, source)
        return
    spec = load_config(VocabularySpec, source)
    stage = Stage(
        folder.vocabulary,
        "vocabulary",
        {
            "corpus": read_record(folder.corpus).fingerprint,
            "spec": fingerprint(spec.model_dump(mode="json")),
            "sentencepiece": sentencepiece.__version__,
            "code": code_fingerprint("vocab"),
        },
    )
    if stage.is_done():
        print(f"vocabulary: already done ({folder.vocabulary}).")
        return
    with stage.write() as output:
        build(folder, spec, output)


def build(folder: RunFolder, spec: VocabularySpec, output: StageOutput) -> None:
    """Sample, train, measure, and print what came out."""
    sample = sample_text(folder.corpus, alpha=spec.sampling_alpha, max_characters=spec.max_characters, seed=spec.seed)
    print(f"vocabulary: training on {sum(sample.characters.values()):,} characters in {len(sample.characters)} languages")
    vocabulary = train_vocabulary(sample.lines, spec)
    vocabulary.save(output.folder, spec)
    output.summary.update(measure(folder, vocabulary, sample, spec.seed, output))
    if vocabulary.size < spec.size:
        print(f"vocabulary: the text fills {vocabulary.size:,} of the {spec.size:,} pieces asked for.")
    print(f"vocabulary: {vocabulary.size:,} pieces, fingerprint {vocabulary.fingerprint}, in {folder.vocabulary}")


def take_over(folder: RunFolder, source: Path) -> None:
    """Copy a vocabulary that exists already and measure it on the corpus."""
    vocabulary = Vocabulary.load(source)
    inputs = {"corpus": read_record(folder.corpus).fingerprint, "vocabulary": vocabulary.fingerprint, "code": code_fingerprint("vocab")}
    stage = Stage(folder.vocabulary, "vocabulary", inputs)
    if stage.is_done():
        print(f"vocabulary: already done ({folder.vocabulary}).")
        return
    with stage.write() as output:
        for name in (MODEL_FILE, DESCRIPTION_FILE):
            if (source / name).is_file():
                shutil.copyfile(source / name, output.folder / name)
        # Nothing is sampled; this counts the text that coverage is measured on.
        sample = sample_text(folder.corpus, alpha=1.0, max_characters=0, seed=0)
        output.summary.update(measure(folder, vocabulary, sample, 0, output))
    print(f"vocabulary: {vocabulary.size:,} pieces of {source}, fingerprint {vocabulary.fingerprint}, in {folder.vocabulary}")


def measure(folder: RunFolder, vocabulary: Vocabulary, sample: TextSample, seed: int, output: StageOutput) -> dict[str, object]:
    """Write coverage.json, print its table, and return the stage's summary."""
    rows = []
    for language, available in track(
        sorted(sample.available_characters.items()), "vocabulary coverage", total=len(sample.available_characters), unit="languages"
    ):
        share = COVERAGE_CHARACTERS_PER_LANGUAGE / available
        texts = thin_texts(folder.corpus, language, keep_share=share, seed=seed)
        rows.append(measure_coverage(vocabulary, language, texts))
    write_json(output.folder / "coverage.json", {"languages": {row.language: row.as_json() for row in rows}})
    print(coverage_table(rows))
    for reason, count in sorted(sample.counts.items()):
        if count:
            print(f"vocabulary: {count:,} lines {reason}")
    return {
        "size": vocabulary.size,
        "fingerprint": vocabulary.fingerprint,
        "sampled_characters": sample.characters,
        "available_characters": sample.available_characters,
        "lines": len(sample.lines),
        "line_counts": dict(sample.counts),
    }


if __name__ == "__main__":
    main()
