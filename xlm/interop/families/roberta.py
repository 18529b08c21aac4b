"""RoBERTa (Liu et al. 2019) and XLM-R (Conneau et al. 2020): one architecture under two names."""

from __future__ import annotations

from xlm.interop.family import Architecture, Family, bert_blocks, bert_embeddings, bert_fields


def _family(name: str, architecture: str) -> Family:
    return Family(
        name=name,
        architectures=(Architecture(architecture),),
        # 514 rows and an epsilon of 1e-5 are the published checkpoints'; these are the defaults of the class.
        fields=bert_fields(type_count=2),
        always={"norm_position": "post", "positions": "learned"},
        # The head computes the exact GELU whatever the layers do.
        activations=("gelu",),
        names={
            **bert_embeddings("roberta.embeddings"),
            **bert_blocks("roberta.encoder.layer"),
            "lm_head.dense": "lm_head.dense",
            "lm_head.norm": "lm_head.layer_norm",
        },
        decoder="lm_head.decoder",
        head_bias="lm_head.bias",
        surplus=("roberta.embeddings.position_ids", "roberta.embeddings.token_type_ids", "roberta.pooler.dense.*"),
        positions_follow_padding=True,
    )


ROBERTA = _family("roberta", "RobertaForMaskedLM")
XLM_ROBERTA = _family("xlm-roberta", "XLMRobertaForMaskedLM")
