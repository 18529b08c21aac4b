"""ModernBERT (Warner et al. 2024): rotary positions, GeGLU, local attention between global layers, no biases."""

from __future__ import annotations

import json
from typing import Any

from xlm.config.model import ModelConfig
from xlm.errors import UserError
from xlm.interop.family import ENCODER_ONLY, SPECIAL_IDS, Architecture, Facts, Family, Field, TheirConfig

_LAYER = "model.layers.{n}"
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_THETA = {_GLOBAL: ("global_rope_theta", 160_000.0), _LOCAL: ("local_rope_theta", 10_000.0)}
_ENCODER = {name: value for name, value in ENCODER_ONLY.items() if name != "position_embedding_type"}
_BIASES = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")


def _read(theirs: TheirConfig) -> dict[str, Any]:
    layers = int(theirs.get("num_hidden_layers", 22))
    values = {
        "biases": _one_value(theirs, _BIASES, default=False),
        "dropout": _one_value(theirs, ("embedding_dropout", "mlp_dropout"), default=0.0),
        "rotary_base": _rotary_base(theirs, _GLOBAL),
        "embedding_norm": True,
        "output_bias": theirs.get("decoder_bias", True),
    }
    period = _global_every(theirs, layers)
    if period > 1:
        values |= {"local_window": theirs.get("local_attention", 128), "global_every": period}
        values["local_rotary_base"] = _rotary_base(theirs, _LOCAL)
    return values


def _write(config: ModelConfig, _facts: Facts) -> dict[str, Any]:
    kinds = [_GLOBAL if config.reach(layer) is None else _LOCAL for layer in range(config.layers)]
    local = config.local_rotary_base or config.rotary_base
    return {
        **dict.fromkeys(_BIASES, config.biases),
        **dict.fromkeys(("embedding_dropout", "mlp_dropout"), config.dropout),
        "decoder_bias": config.output_bias,
        "layer_types": kinds,
        "local_attention": config.local_window or 128,
        "rope_parameters": {
            _GLOBAL: {"rope_type": "default", "rope_theta": config.rotary_base},
            _LOCAL: {"rope_type": "default", "rope_theta": local},
        },
    }


def _one_value(theirs: TheirConfig, names: tuple[str, ...], default: object) -> Any:  # noqa: ANN401 (JSON)
    found = {name: theirs.get(name, default) for name in names}
    if len(set(found.values())) > 1:
        said = ", ".join(f"{name} {value}" for name, value in found.items())
        raise UserError(f"config.json says {said}; models with one value for all of these can be taken over.")
    return found[names[0]]


def _rotary_base(theirs: TheirConfig, kind: str) -> float:
    old_name, default = _THETA[kind]
    if theirs.get("rope_scaling"):
        raise UserError(f"config.json says rope_scaling {theirs['rope_scaling']}; rotary positions without scaling can be taken over.")
    both = theirs.get("rope_parameters") or {}
    parameters = (both.get(kind) if isinstance(both, dict) else both) or {}
    if not isinstance(parameters, dict):
        raise UserError(f"config.json says rope_parameters {json.dumps(both)}; rope_type and rope_theta for {kind} are needed.")
    rope_type = parameters.get("rope_type", "default")
    if rope_type != "default":
        raise UserError(f"config.json says rope_type {rope_type} for {kind}; default can be taken over.")
    base: float = parameters.get("rope_theta") or theirs.get(old_name) or default
    return float(base)


def _global_every(theirs: TheirConfig, layers: int) -> int:
    """Return after how many layers global attention comes again, 1 where all is global; raises UserError for another pattern."""
    kinds = theirs.get("layer_types")
    if kinds is None:
        every = theirs.get("global_attn_every_n_layers", 3)
        if not isinstance(every, int) or every < 1:
            raise UserError(f"config.json says global_attn_every_n_layers {json.dumps(every)}; a whole number from 1 on is needed.")
        return every
    for period in range(1, layers + 1):
        if list(kinds) == [_LOCAL if layer % period else _GLOBAL for layer in range(layers)]:
            return period
    raise UserError(
        f"config.json says layer_types {', '.join(kinds)}; patterns that begin with full_attention and repeat it after a fixed "
        "number of layers can be taken over."
    )


FAMILY = Family(
    name="modernbert",
    architectures=(Architecture("ModernBertForMaskedLM"),),
    fields=(
        Field("hidden_size", "width", 768),
        Field("num_hidden_layers", "layers", 22),
        Field("num_attention_heads", "heads", 12),
        Field("intermediate_size", "feed_forward", 1152),
        Field("max_position_embeddings", "max_positions", 8192),
        Field("attention_dropout", "attention_dropout", 0.0),
        Field("norm_eps", "norm_epsilon", 1e-5),
        Field("initializer_range", "initializer_range", 0.02),
    ),
    always={"norm_position": "pre", "positions": "rotary"},
    # Positions are always rotary; mmBERT's configurations say "sans_pos" under a key that nothing reads.
    fixed={**_ENCODER, "classifier_activation": "gelu", "hidden_activation": "gelu"},
    activations=("geglu",),
    activation_field="hidden_activation",
    names={
        "encoder.embeddings.tokens.weight": "model.embeddings.tok_embeddings.weight",
        "encoder.embeddings.norm": "model.embeddings.norm",
        "encoder.blocks.{n}.attention.qkv": f"{_LAYER}.attn.Wqkv",
        "encoder.blocks.{n}.attention.output": f"{_LAYER}.attn.Wo",
        "encoder.blocks.{n}.attention_norm": f"{_LAYER}.attn_norm",
        "encoder.blocks.{n}.feed_forward.inner": f"{_LAYER}.mlp.Wi",
        "encoder.blocks.{n}.feed_forward.output": f"{_LAYER}.mlp.Wo",
        "encoder.blocks.{n}.feed_forward_norm": f"{_LAYER}.mlp_norm",
        "encoder.final_norm": "model.final_norm",
        "lm_head.dense": "head.dense",
        "lm_head.norm": "head.norm",
    },
    decoder="decoder",
    optional_biases=True,
    special_ids={**SPECIAL_IDS, "cls_token_id": "bos_id", "sep_token_id": "eos_id"},
    read_more=_read,
    write_more=_write,
)
