"""Megatron-BERT (Shoeybi et al. 2019): BERT with the norm before each part and one at the end; where our pre-norm encoders go."""

from __future__ import annotations

from xlm.interop.family import Architecture, Family, Field, bert_blocks, bert_embeddings, bert_fields

_EMBEDDINGS = {ours: theirs for ours, theirs in bert_embeddings("bert.embeddings").items() if not ours.endswith(".norm")}
# The class's own defaults; BERT's where they are the same.
_SIZES = (
    Field("hidden_size", "width", 1024),
    Field("num_hidden_layers", "layers", 24),
    Field("num_attention_heads", "heads", 16),
    Field("intermediate_size", "feed_forward", 4096),
)

FAMILY = Family(
    name="megatron-bert",
    architectures=(Architecture("MegatronBertForMaskedLM"), Architecture("MegatronBertForPreTraining", sentence_head=True)),
    fields=(*_SIZES, *(field for field in bert_fields(type_count=2) if field.ours not in {size.ours for size in _SIZES})),
    always={"norm_position": "pre", "positions": "learned"},
    names={
        **_EMBEDDINGS,
        **bert_blocks("bert.encoder.layer"),
        "encoder.blocks.{n}.attention_norm": "bert.encoder.layer.{n}.attention.ln",
        "encoder.blocks.{n}.feed_forward_norm": "bert.encoder.layer.{n}.ln",
        "encoder.final_norm": "bert.encoder.ln",
        # Of a model whose final norm belongs to the head; import makes it the encoder's.
        "lm_head.input_norm": "bert.encoder.ln",
        "lm_head.dense": "cls.predictions.transform.dense",
        "lm_head.norm": "cls.predictions.transform.LayerNorm",
        "sentence_head.pooler": "bert.pooler.dense",
        "sentence_head.classifier": "cls.seq_relationship",
    },
    decoder="cls.predictions.decoder",
    head_bias="cls.predictions.bias",
    surplus=("bert.embeddings.position_ids", "bert.pooler.dense.*", "cls.seq_relationship.*"),
)
