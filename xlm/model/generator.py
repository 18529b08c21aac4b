"""ELECTRA's generator: layers of its own on the embeddings of the model that it trains (Clark et al. 2020)."""

from __future__ import annotations

from torch import Tensor, nn

from xlm.config.model import GeneratorSection, ModelConfig
from xlm.model.dropout import DropoutKey
from xlm.model.encoder import LayerStack
from xlm.model.heads import LanguageModelHead


def generator_config(config: ModelConfig, section: GeneratorSection) -> ModelConfig:
    """Return the generator's own shape: the model's choices at the generator's sizes, on the model's embeddings."""
    sizes = {"width": section.width, "layers": section.layers, "heads": section.heads, "feed_forward": section.feed_forward}
    apart = {"embedding_width": config.embedding_size, "layer_groups": None, "generator": None, "language_model_head": True}
    heads = {"sentence_head": False, "discriminator_head": False, "head_transform": True, "tied_output": True}
    return ModelConfig(**{**config.model_dump(), **sizes, **apart, **heads})


class Generator(nn.Module):
    """Reads the sum of the model's embeddings; its projection onto the vocabulary is the model's token table."""

    def __init__(self, config: ModelConfig, section: GeneratorSection, vocabulary_size: int, key: DropoutKey) -> None:
        super().__init__()
        own = generator_config(config, section)
        self.layers = LayerStack(own, key)
        self.lm_head = LanguageModelHead(own, vocabulary_size)

    def forward(self, embedded: Tensor, position_ids: Tensor, cu_seqlens: Tensor, needed: Tensor) -> Tensor:
        """Return what the vocabulary projection reads at ``needed`` [P], [P, embedding width]."""
        states = self.layers.run(embedded, position_ids, cu_seqlens, None, needed, keep_all=False)
        predicted: Tensor = self.lm_head(states[-1])
        return predicted
