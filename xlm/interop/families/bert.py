"""BERT and multilingual BERT (Devlin et al. 2019): masked words and, before ``ForMaskedLM`` came up, next sentences."""

from __future__ import annotations

from xlm.interop.family import Architecture, Family, bert_blocks, bert_embeddings, bert_fields

FAMILY = Family(
    name="bert",
    architectures=(Architecture("BertForMaskedLM"), Architecture("BertForPreTraining", sentence_head=True)),
    fields=bert_fields(type_count=2),
    always={"norm_position": "post", "positions": "learned"},
    names={
        **bert_embeddings("bert.embeddings"),
        **bert_blocks("bert.encoder.layer"),
        "lm_head.dense": "cls.predictions.transform.dense",
        "lm_head.norm": "cls.predictions.transform.LayerNorm",
        "sentence_head.pooler": "bert.pooler.dense",
        "sentence_head.classifier": "cls.seq_relationship",
    },
    decoder="cls.predictions.decoder",
    head_bias="cls.predictions.bias",
    surplus=("bert.embeddings.position_ids", "bert.embeddings.token_type_ids", "bert.pooler.dense.*", "cls.seq_relationship.*"),
)
