"""The encoder: a stack of attention and feed-forward layers over packed sequences."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor, nn

from xlm.config.model import ModelConfig
from xlm.model.activation_checkpointing import recomputed
from xlm.model.attention import AttentionPlan, plan_attention
from xlm.model.block import Block, LayerInput
from xlm.model.dropout import DropoutKey
from xlm.model.embeddings import Embeddings, beyond_positions
from xlm.model.initialisation import initialise_parameters, norm_layer, unfilled_linear
from xlm.model.rotary import Rotation, rotation


class LayerStack(nn.Module):
    """From the sum of the embeddings to hidden states: the part of an encoder that a generator has for itself."""

    keeps_inputs_alone = False  # of layers, while training; see `xlm.model.activation_checkpointing`

    def __init__(self, config: ModelConfig, key: DropoutKey) -> None:
        super().__init__()
        self.config = config
        self.dropout_key = key
        factorised = config.embedding_size != config.width
        self.embedding_projection = unfilled_linear(config.embedding_size, config.width, bias=config.biases) if factorised else None
        count = config.layers if config.layer_groups is None else config.layer_groups
        # Only where the first block reads the norm's own output, and is the block of no other layer.
        skips_first_norm = config.norm_position == "pre" and config.has_embedding_norm and not factorised and count == config.layers
        self.blocks = nn.ModuleList(Block(config, key, first_norm=not (skips_first_norm and number == 0)) for number in range(count))
        self.final_norm = norm_layer(config, config.width) if config.norm_position == "pre" and config.final_norm == "encoder" else None

    def run(
        self, hidden: Tensor, position_ids: Tensor, cu_seqlens: Tensor, causal: Tensor | None, needed: Tensor | None, keep_all: bool
    ) -> list[Tensor]:
        """Return the states of every layer, the embeddings first, or with ``keep_all`` false the last alone.

        With ``needed`` [N] the last layer goes on with these tokens only after its attention: nobody reads the others.
        """
        if self.embedding_projection is not None:
            hidden = self.embedding_projection(hidden)
        views = _LayerViews(self.config, position_ids, cu_seqlens, causal)
        states = [hidden]
        last = self.config.layers - 1
        for number in range(self.config.layers):
            keep = self._stochastic_depth(number, hidden, cu_seqlens)
            layer = LayerInput(views.plan(number), views.rotation(number), needed if number == last else None, keep)
            block = self.block_of(number)
            again = self.keeps_inputs_alone and self.training and torch.is_grad_enabled()
            hidden = recomputed(block, hidden, layer, key=self.dropout_key) if again else block(hidden, layer)
            states = [*states, hidden] if keep_all else [hidden]
        if self.final_norm is not None:
            states[-1] = self.final_norm(states[-1])
        return states

    def block_of(self, layer: int) -> Block:
        """Return the block of a layer; consecutive layers of a group are one block."""
        block = self.blocks[layer * len(self.blocks) // self.config.layers]
        assert isinstance(block, Block)
        return block

    def _stochastic_depth(self, layer: int, hidden: Tensor, cu_seqlens: Tensor) -> tuple[Tensor, Tensor] | None:
        """Draw, for each sequence, whether it skips the two branches of a layer (Huang et al. 2016, linear decay)."""
        rate = self.config.stochastic_depth * (layer + 1) / self.config.layers
        if not self.training or rate == 0.0:
            return None
        lengths = cu_seqlens.diff().to(hidden.device, torch.int64)
        generator = torch.Generator(device=hidden.device).manual_seed(self.dropout_key.next_seed())
        kept = torch.empty(2, len(lengths), 1, device=hidden.device).bernoulli_(1.0 - rate, generator=generator).div_(1.0 - rate)
        of_token = torch.repeat_interleave(torch.arange(len(lengths), device=hidden.device), lengths, output_size=hidden.shape[0])
        return kept[0][of_token], kept[1][of_token]


class _LayerViews:
    """What layers of a kind share: attention plans by reach, rotations by base, each made when first asked for."""

    def __init__(self, config: ModelConfig, position_ids: Tensor, cu_seqlens: Tensor, causal: Tensor | None) -> None:
        self._config, self._position_ids, self._cu_seqlens, self._causal = config, position_ids, cu_seqlens, causal
        self._plans: dict[int | None, AttentionPlan] = {}
        self._rotations: dict[float, Rotation] = {}
        longest = self.plan(0).longest
        # Positions that restart inside a sequence may stay below the limit: look only where it could be passed.
        if longest > config.max_positions and int(position_ids.max()) >= config.max_positions:
            raise beyond_positions(position_ids, config.max_positions)

    def plan(self, layer: int) -> AttentionPlan:
        reach = self._config.reach(layer)
        if reach not in self._plans:
            self._plans[reach] = plan_attention(self._cu_seqlens, self._config.heads, causal=self._causal, reach=reach)
        return self._plans[reach]

    def rotation(self, layer: int) -> Rotation | None:
        if self._config.positions != "rotary":
            return None
        base = self._config.rotary_base_of(layer)
        if base not in self._rotations:
            self._rotations[base] = rotation(self._position_ids, self._config.width // self._config.heads, base)
        return self._rotations[base]


class Encoder(LayerStack):
    """Ids of packed sequences in, hidden states of their tokens out.

    First values are drawn by ``seed``; None leaves them to whoever loads or draws them.
    """

    def __init__(self, config: ModelConfig, vocabulary_size: int, language_count: int, *, seed: int | None = 0) -> None:
        key = DropoutKey()
        super().__init__(config, key)
        self.vocabulary_size = vocabulary_size
        self.language_count = language_count
        self.embeddings = Embeddings(config, vocabulary_size, language_count, key)
        if seed is not None:
            initialise_parameters(self, config, seed)

    @overload
    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        cu_seqlens: Tensor,
        *,
        token_type_ids: Tensor | None = None,
        language_ids: Tensor | None = None,
        causal: Tensor | None = None,
        needed: Tensor | None = None,
        token_table: Tensor | None = None,
        return_layers: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        cu_seqlens: Tensor,
        *,
        token_type_ids: Tensor | None = None,
        language_ids: Tensor | None = None,
        causal: Tensor | None = None,
        needed: Tensor | None = None,
        token_table: Tensor | None = None,
        return_layers: Literal[True],
    ) -> tuple[Tensor, ...]: ...

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        cu_seqlens: Tensor,
        *,
        token_type_ids: Tensor | None = None,
        language_ids: Tensor | None = None,
        causal: Tensor | None = None,
        needed: Tensor | None = None,
        token_table: Tensor | None = None,
        return_layers: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        """Encode [T] ids with boundaries [S + 1] as [T, width], or as the states of ``needed`` tokens [N], [N, width].

        ``causal`` [S] marks sequences whose tokens see only what comes before them. With ``return_layers``: all
        layers + 1 states, the first the embeddings, the last after the final norm. Raises UserError for positions
        beyond the model's.
        """
        embedded = self.embeddings(input_ids, position_ids, token_type_ids, language_ids, token_table)
        states = self.run(embedded, position_ids, cu_seqlens, causal, needed, return_layers)
        return tuple(states) if return_layers else states[-1]


def checkpoint_layers(model: nn.Module) -> None:
    """Have all layers of a model, its generator's too, keep their inputs alone while it is trained."""
    for module in model.modules():
        if isinstance(module, LayerStack):
            module.keeps_inputs_alone = True
