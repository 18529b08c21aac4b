"""XLM (Conneau & Lample 2019): language embeddings or none, learned or sinusoidal positions, a bare projection as its head."""

from __future__ import annotations

from typing import Any

from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.interop.family import SPECIAL_IDS, Architecture, Facts, Family, Field, TheirConfig

_HIDDEN_PER_WIDTH = 4  # the class has no other feed-forward width


def _read(theirs: TheirConfig) -> dict[str, Any]:
    return {
        "feed_forward": _HIDDEN_PER_WIDTH * int(theirs.get("emb_dim", 2048)),
        "positions": "sinusoidal" if theirs.get("sinusoidal_embeddings", False) else "learned",
        "language_embeddings": bool(theirs.get("use_lang_emb", True)) and int(theirs.get("n_langs", 1)) > 1,
    }


def _write(config: ModelConfig, facts: Facts) -> dict[str, Any]:
    values: dict[str, Any] = {"sinusoidal_embeddings": config.positions == "sinusoidal", "use_lang_emb": config.language_embeddings}
    if not config.language_embeddings:
        return {**values, "n_langs": 1}
    if len(facts.languages) < 2:
        raise UserError("XLM in transformers has language embeddings only for two languages or more; this model has one.")
    numbers = {language: number for number, language in enumerate(facts.languages)}
    names = {str(number): language for language, number in numbers.items()}
    return {**values, "n_langs": len(facts.languages), "lang2id": numbers, "id2lang": names}


def _languages_of(theirs: TheirConfig) -> tuple[str, ...]:
    """Return the names of the rows of their language embeddings; raises UserError where not every row has one."""
    count = int(theirs.get("n_langs", 1))
    named = {int(number): language for language, number in (theirs.get("lang2id") or {}).items()}
    if sorted(named) != list(range(count)):
        raise UserError(
            f"config.json has n_langs {count}, but lang2id names {len(named)} of them; add lang2id with every language and its row."
        )
    return tuple(named[number] for number in range(count))


FAMILY = Family(
    name="xlm",
    architectures=(Architecture("XLMWithLMHeadModel"),),
    fields=(
        Field("emb_dim", "width", 2048),
        Field("n_layers", "layers", 12),
        Field("n_heads", "heads", 16),
        Field("max_position_embeddings", "max_positions", 512),
        Field("dropout", "dropout", 0.1),
        Field("attention_dropout", "attention_dropout", 0.1),
        Field("layer_norm_eps", "norm_epsilon", 1e-12),
        Field("init_std", "initializer_range", 0.02),
        Field("embed_init_std", "embedding_initializer_range", 2048**-0.5),
    ),
    always={"norm_position": "post", "head_transform": False},
    fixed={"causal": False, "asm": False, "is_encoder": True, "gelu_activation": True},
    activations=("gelu",),
    activation_field="",
    names={
        "encoder.embeddings.tokens.weight": "transformer.embeddings.weight",
        "encoder.embeddings.positions.weight": "transformer.position_embeddings.weight",
        "encoder.embeddings.languages.weight": "transformer.lang_embeddings.weight",
        "encoder.embeddings.norm": "transformer.layer_norm_emb",
        "encoder.blocks.{n}.attention.qkv": (
            "transformer.attentions.{n}.q_lin",
            "transformer.attentions.{n}.k_lin",
            "transformer.attentions.{n}.v_lin",
        ),
        "encoder.blocks.{n}.attention.output": "transformer.attentions.{n}.out_lin",
        "encoder.blocks.{n}.attention_norm": "transformer.layer_norm1.{n}",
        "encoder.blocks.{n}.feed_forward.inner": "transformer.ffns.{n}.lin1",
        "encoder.blocks.{n}.feed_forward.output": "transformer.ffns.{n}.lin2",
        "encoder.blocks.{n}.feed_forward_norm": "transformer.layer_norm2.{n}",
    },
    decoder="pred_layer.proj",
    surplus=("transformer.position_ids",),
    read_more=_read,
    write_more=_write,
    read_languages=_languages_of,
    special_ids={**SPECIAL_IDS, "unk_index": "unk_id", "mask_index": "mask_id"},
)
