"""A finished run folder with made-up but plausible numbers, in the formats that the stages write."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from xlm.config.recipe import Recipe
from xlm.config.strict import load_config
from xlm.runs.folder import RunFolder
from xlm.runs.stage import Stage, write_json
from xlm.seeding import keyed_generator
from xlm.shards.index import CorpusEntry, PlanEntry, PlanFile, ShardIndex

RECIPE = Path(__file__).resolve().parents[2] / "pipelines" / "recipes" / "quickstart.yaml"
LANGUAGES = ("en", "fr", "de", "es", "ru", "zh-Hans", "ja", "tr", "el", "vi", "ar", "hi")
PROBE = dict(zip(LANGUAGES, (90, 36, 39, 35, 35, 47, 21, 42, 40, 37, 16, 17), strict=True))
FLOOR = dict(zip(LANGUAGES, (90, 18, 17, 17, 4, 4, 3, 11, 4, 7, 4, 4), strict=True))
COSTS = {"normalised": (48, 0.9), "tasks": (21, 1.1), "corpus": (33, 1.3), "vocabulary": (36, 1.0), "shards": (24, 0.8)}
COSTS |= {"embeddings": (19, 1.6), "train": (348, 3.4), "zero_shot": (131, 2.2), "code_switching": (22, 1.5)}


def intents_entry(language: str) -> dict:
    probe, floor = float(PROBE[language]), float(FLOOR[language])

    def system(accuracy: float) -> dict:
        seeds = {str(seed): {"accuracy": accuracy + 0.3 * (seed - 2), "macro_f1": 0.8 * accuracy} for seed in (1, 2, 3)}
        return {"accuracy": accuracy, "interval": [accuracy - 2.5, accuracy + 2.5], "macro_f1": 0.8 * accuracy, "seeds": seeds}

    systems = {"probe": system(probe), "finetuned": system(probe - 2), "character_floor": system(floor)}
    systems |= {"code_switched_training": system(probe + 4), "code_switched_finetuning": system(probe + 1)}
    systems |= {
        "code_switched_character_floor": system(floor + 3),
        "random_encoder": system(5.5),
        "bag_of_aligned_embeddings": system(probe / 2),
        "chance": system(3.0),
    }
    differences = {
        f"{ours}-{theirs}": {"gain": gain, "interval": [gain - 2.0, gain + 2.0]}
        for ours, theirs, gain in (
            ("probe", "character_floor", probe - floor),
            ("probe", "random_encoder", probe - 5.5),
            ("finetuned", "character_floor", probe - 2 - floor),
            ("code_switched_training", "probe", 4.0),
        )
    }
    shown_only = language in ("ja", "tr", "hi")
    return {"sentences": 1200, "templates": 310, "shown_only": shown_only, "systems": systems, "differences": differences}


def slots_entry(language: str) -> dict:
    f1 = PROBE[language] - 10.0
    systems = {
        name: {"f1": f1 - less, "interval": [f1 - less - 2, f1 - less + 2], "strict_f1": f1 - less - 1}
        for name, less in (("probe", 0), ("finetuned", -3), ("character_floor", 20), ("random_encoder", 22))
    }
    gain = {"gain": 20.0, "interval": [17.0, 23.0]}
    return {"sentences": 1100, "entities": 1500, "systems": systems, "differences": {"probe-character_floor": gain}}


def retrieval_entry(language: str) -> dict:
    def top1(mean: float) -> dict:
        return {"en_to_xx": mean - 0.7, "xx_to_en": mean + 0.7, "mean": mean}

    small = language in ("hi", "ar")
    high = 84.0 if small else 94.0 + PROBE[language] / 20
    encoder = {"top1_200": top1(high), "top1_2000": None if small else top1(high - 14), "margin_200": top1(high + 0.5)}
    bag = {"top1_200": top1(51.0), "top1_2000": None if small else top1(28.0)}
    random = {"top1_200": top1(4.0), "top1_2000": None if small else top1(1.0)}
    systems = {"encoder": encoder, "bag_of_aligned_embeddings": bag, "random_encoder": random}
    return {"pool": 240 if small else 2000, "systems": systems}


def zero_shot_scores() -> dict:
    mean = [PROBE[language] for language in ("de", "fr", "es", "ru", "zh-Hans", "ar", "el", "vi")]
    return {
        "unit": "percent",
        "intents": {
            "labels": 42,
            "languages": {language: intents_entry(language) for language in LANGUAGES},
            "mean_differences": {
                "probe-character_floor": {"gain": 26.2, "interval": [24.1, 28.3]},
                "probe-bag_of_aligned_embeddings": {"gain": -0.4, "interval": [-1.5, 0.7]},
                "code_switched_training-probe": {"gain": 4.0, "interval": [3.0, 5.0]},
            },
            "code_switched_training": {"rate": 0.5, "copies": 4, "realised_share": 27.3, "mean_cmi": 24.0},
            "collapsed": {},
        },
        "topics": {
            "labels": ["arts", "history"],
            "languages": {
                language: {
                    "sentences": 700,
                    "systems": {"probe": {"accuracy": 60.0, "interval": [57.0, 63.0]}, "character_floor": {"accuracy": 51.0}},
                    "differences": {"probe-character_floor": {"gain": 9.0, "interval": [5.0, 13.0]}},
                }
                for language in ("en", "fr", "es")
            },
        },
        "slots": {
            "tags": 40,
            "languages": {language: slots_entry(language) for language in LANGUAGES},
            "mean_differences": {"probe-character_floor": {"gain": 20.0, "interval": [18.0, 22.0]}},
        },
        "retrieval": {
            "layer": "final",
            "languages": {language: retrieval_entry(language) for language in LANGUAGES[1:]},
            "left_out": {"top1_200": {}, "top1_2000": {"hi": "pool of 240", "ar": "pool of 240"}},
        },
        "summary": {
            "intents.probe": sum(mean) / len(mean),
            "intents.finetuned": sum(mean) / len(mean) - 2,
            "intents.code_switched_training": sum(mean) / len(mean) + 4,
            "intents.character_floor": 9.4,
            "slots.probe": 25.6,
            "slots.finetuned": 28.6,
            "intents.random_encoder": 5.5,
            "intents.bag_of_aligned_embeddings": 17.8,
            "retrieval.top1_200": 94.1,
            "retrieval.top1_2000": 81.0,
        },
        "provenance": {"checkpoint": "step-00000300", "seeds": [1, 2, 3], "protocol": "English labels only; chosen on English dev."},
    }


def code_switching_scores() -> dict:
    def entry(language: str, rate: float) -> dict:
        systems = {"probe": {"accuracy": 84 - 20 * rate, "interval": [70.0, 80.0]}, "character_floor": {"accuracy": 78 - 55 * rate}}
        systems["code_switched_training"] = {"accuracy": 84 - 10 * rate, "interval": [72.0, 84.0]}
        systems["code_switched_character_floor"] = {"accuracy": 79 - 45 * rate}
        counts = {"sentences": 900, "unswitched": 41, "realised_share": 60 * rate, "mean_cmi": 45 * rate}
        return counts | {"systems": systems}

    def bucket(low: int, high: int, probe: int, floor: int) -> dict:
        differences = {
            f"{name}-{own}": {"gain": float(gain), "interval": [gain - 4.0, gain + 4.0]}
            for name, own, gain in (
                ("probe", "character_floor", probe - floor),
                ("code_switched_training", "code_switched_character_floor", probe + 1 - floor),
            )
        }
        few = high == 50
        accuracy = {"probe": probe, "character_floor": floor}
        accuracy |= {"code_switched_training": probe + 2, "code_switched_character_floor": floor + 1}
        return {"low": low, "high": high, "sentences": 150 if few else 800, **accuracy, "differences": None if few else differences}

    buckets = [(0, 0, 89, 89), (0, 10, 86, 80), (10, 20, 80, 66), (20, 30, 74, 55), (30, 40, 69, 47), (40, 50, 66, 41)]
    english = {"probe": 90.0, "code_switched_training": 89.0, "character_floor": 90.0, "code_switched_character_floor": 88.0}
    return {
        "unit": "percent",
        "english": {"systems": {name: {"accuracy": accuracy} for name, accuracy in english.items()}},
        "languages": {language: {str(rate): entry(language, rate) for rate in (0.25, 0.5)} for language in ("de", "ru", "zh-Hans")},
        "cmi_buckets": [bucket(*values) for values in buckets],
        "lexicon": {language: {"entries": 20000, "left_out": 8000, "coverage": 34.0} for language in ("de", "ru", "zh-Hans")},
        "provenance": {"lexicon": "one to three words"},
    }


def metrics_lines() -> str:
    noise = keyed_generator("made-up-losses")
    lines = []
    for step in range(5, 301, 5):
        wobble = 0.08 * noise.standard_normal(3)
        row = {"step": step, "tokens": step * 12288, "tokens_per_second": 12000.0, "learning_rate": 1e-3}
        row["loss/mlm"] = 6 + 3.2 * math.exp(-step / 90) + wobble[0]
        row["loss/tlm"] = 4.4 + 4.8 * math.exp(-step / 70) + wobble[1]
        row["loss/contrastive"] = 0.5 + 3.4 * math.exp(-step / 50) + wobble[2]
        row["loss"] = row["loss/mlm"]
        row["loss/mlm/de"] = row["loss/mlm"] + 0.2
        lines.append(json.dumps(row))
    return "\n".join(lines) + "\n"


def write_stage(folder: Path, files: dict[str, object], summary: dict[str, object]) -> None:
    stage = Stage(folder, folder.name, {"made-up": folder.name})
    with stage.write() as output:
        output.summary.update(summary)
        for name, value in files.items():
            if isinstance(value, str):
                (output.folder / name).write_text(value, encoding="utf-8")
            else:
                write_json(output.folder / name, value)
    record = json.loads((folder / "stage.json").read_text(encoding="utf-8"))
    wall_s, gibibytes = COSTS[folder.name]
    write_json(folder / "stage.json", record | {"wall_s": float(wall_s), "peak_memory_bytes": int(gibibytes * 2**30)})


def coverage_row(language: str, rank: int) -> dict:
    spaced = language not in ("zh-Hans", "ja")
    row = {"language": language, "texts": 9000, "characters": 300_000, "pieces": 90_000}
    row |= {"pieces_per_word": 1.3 + rank / 15 if spaced else None, "pieces_per_character": 0.25 if spaced else 0.58}
    return row | {"unknown_rate": 0.0, "byte_rate": 0.0004, "vocabulary_used": 7000 - 200 * rank}


def shard_index(sizes: dict[str, int]) -> ShardIndex:
    """Return an index of corpora of so many tokens, with rows of 128 for the quickstart's objectives."""
    corpora, plans = {}, {}
    for name, tokens in sizes.items():
        languages = tuple(name.split("_"))
        kind, layouts = ("pair", ("pairs", "separate_pairs")) if len(languages) == 2 else ("monolingual", ("documents",))
        corpora[name] = CorpusEntry(name, kind, languages, tokens // 9, tokens, tokens // 9, ())
        rows = tokens // 120
        for layout in layouts:
            files = (PlanFile("none", rows, 0, ""),)
            plans[name, layout, 128, 0] = PlanEntry(name, layout, 128, 0, rows, tokens // 9, tokens, 0.98, files)
    return ShardIndex("made-up", 1, corpora, plans)


def fill_run(run: RunFolder, *, tasks: bool = True) -> None:
    """Write every stage's folder of a run."""
    sizes = {language: 900_000 // (rank + 1) for rank, language in enumerate(LANGUAGES)}
    dropped = {language: {"weblate": {"duplicate": 12000, "wrong_script": 210}, "django": {"empty": 90}} for language in LANGUAGES}
    kept = {language: {"documents": 30000, "characters": 1_200_000} for language in LANGUAGES}
    pairs = {f"en_{language}": 25000 for language in LANGUAGES[1:]}
    tokens_by_language = {language: int(3_600_000 * size**0.6 / sum(s**0.6 for s in sizes.values())) for language, size in sizes.items()}
    training = {"tokens_by_language": tokens_by_language, "tokens_per_second": 12044.2, "precision": "bf16", "world_size": 2, "steps": 300}
    rows = {"contrastive": 17_280, "mlm": 2_880, "tlm": 8_640}
    training["seen"] = {"pretrain": {name: {"rows": count, "planned_rows": count, "tokens": 125 * count} for name, count in rows.items()}}
    coverage = {"languages": {language: coverage_row(language, rank) for rank, language in enumerate(LANGUAGES)}}
    write_stage(run.normalised, {}, {})
    write_stage(run.corpus, {"summary.json": {"languages": kept, "pairs": pairs, "dropped": dropped}}, {})
    write_stage(run.vocabulary, {"coverage.json": coverage}, {})
    write_stage(run.shards, {}, {})
    shard_index(sizes | {f"en_{language}": sizes[language] for language in LANGUAGES[1:]}).save(run.shards)
    write_stage(run.embeddings, {}, {})
    write_stage(run.train, {"metrics.jsonl": metrics_lines()}, training)
    if tasks:
        write_stage(run.tasks, {}, {})
        write_stage(run.zero_shot, {"scores.json": zero_shot_scores()}, {})
        write_stage(run.code_switching, {"scores.json": code_switching_scores()}, {})


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    return load_config(Recipe, RECIPE, ["phases.0.steps=300"])


@pytest.fixture(scope="session")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that tests only read."""
    run = RunFolder(tmp_path_factory.mktemp("finished") / "run")
    fill_run(run)
    return run


@pytest.fixture
def finished_run(shared_run: RunFolder, tmp_path: Path) -> RunFolder:
    """A run of the test's own, to be changed."""
    shutil.copytree(shared_run.root, tmp_path / "run")
    return RunFolder(tmp_path / "run")
