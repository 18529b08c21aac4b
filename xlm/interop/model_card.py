"""The README of an exported model: what it is, how to load it, and what is not as in the family's published models."""

from __future__ import annotations

from dataclasses import dataclass

import yaml

from xlm.config.model import ModelConfig


@dataclass(frozen=True)
class CardFacts:
    """What a card says beside the model's shape."""

    languages: tuple[str, ...]
    vocabulary: str
    recipe: str
    step: int
    family: str
    architecture: str
    part: str


def model_card(config: ModelConfig, facts: CardFacts) -> str:
    """Return Markdown with the header that the hub reads; ``config`` is the model's before export."""
    masked = facts.part == "generator" or (config.language_model_head and facts.part != "discriminator")
    languages = sorted({language.split("-")[0] for language in facts.languages})
    header = {
        "library_name": "transformers",
        **({"language": languages} if languages else {}),
        "pipeline_tag": "fill-mask" if masked else "feature-extraction",
        "tags": ["multilingual", "pretraining", "xlm"],
    }
    parts = [
        "---\n" + yaml.safe_dump(header, sort_keys=False, allow_unicode=True) + "---",
        f"# {_title(facts)}",
        _table(config, facts),
        "## Loading\n\n" + _loading(facts, masked),
        "## What differs\n\n" + "\n".join(f"- {sentence}" for sentence in _differences(config, facts)),
    ]
    return "\n\n".join(parts) + "\n"


def _title(facts: CardFacts) -> str:
    what = f"The {facts.part} of a multilingual encoder" if facts.part else "A multilingual encoder"
    return f"{what} in the form of {facts.architecture}"


def _table(config: ModelConfig, facts: CardFacts) -> str:
    languages = ", ".join(facts.languages) if facts.languages else "not recorded"
    rows = {
        "languages": languages,
        "shape": f"{config.layers} layers, width {config.width}, {config.heads} heads, {config.max_positions} positions",
        "training step": f"{facts.step:,}",
        "vocabulary fingerprint": f"`{facts.vocabulary}`",
        "recipe fingerprint": f"`{facts.recipe}`",
        "weights": "fp32, safetensors",
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def _loading(facts: CardFacts, masked: bool) -> str:
    automatic = "AutoModelForMaskedLM" if masked else facts.architecture
    lines = [
        f"from transformers import {automatic}, AutoTokenizer",
        "",
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        f'model = {automatic}.from_pretrained("FOLDER")',
    ]
    if masked:
        lines.append("tokenizer.split_special_tokens = False  # lets a text hold <mask>")
        lines.append('inputs = tokenizer("A <mask>.", return_tensors="pt")')
    return "```python\n" + "\n".join(lines) + "\n```\n\nNothing but transformers is needed, and no code of this folder is run."


def _differences(config: ModelConfig, facts: CardFacts) -> list[str]:
    """Return sentences on what a user of the family would not expect."""
    said = [
        "Special pieces have the ids `<pad>` 0, `<unk>` 1, `<s>` 2, `</s>` 3, `<mask>` 4; `<s>` is the classification piece, `</s>` "
        "the separator.",
        "The tokenizer does not find special pieces in text unless `split_special_tokens` is false.",
    ]
    if config.embedding_scale != 1.0:
        said.append(
            f"Token embeddings are multiplied by {config.embedding_scale:g} on the way in; here that is part of the table, so the "
            "projection onto the vocabulary is a table of its own (`tie_word_embeddings` is false)."
        )
    if config.language_embeddings:
        said.append("The model wants `langs` with every batch: for each token the number of its language, in `config.lang2id`.")
    if config.final_norm == "head":
        said.append(
            "The norm at the end of the encoder is the language-model head's: sentence vectors were trained on the states before it."
        )
    if config.token_types == 0 and facts.family not in {"xlm", "distilbert", "modernbert"}:
        said.append("Token types are not used; their one embedding is zero.")
    if facts.part:
        said.append("Generator and discriminator share their embeddings; each folder holds a copy.")
    return said
