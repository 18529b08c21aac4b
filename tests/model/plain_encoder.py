"""The encoder written out plainly, one sequence at a time, one head at a time: what the packed one is held against."""

import math

import torch
import torch.nn.functional as F  # noqa: N812


def plain_states(stack, embedded, position_ids, cu_seqlens, causal=None):
    """Return the states [T, width] of every layer, the first those that the first block reads, the last after the final norm."""
    config = stack.config
    if stack.embedding_projection is not None:
        embedded = linear(stack.embedding_projection, embedded)
    states = [embedded]
    for layer in range(config.layers):
        block = stack.blocks[layer * len(stack.blocks) // config.layers]
        parts = []
        for number, (start, end) in enumerate(zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True)):
            one_sided = causal is not None and bool(causal[number])
            parts.append(plain_block(block, config, layer, states[-1][start:end], position_ids[start:end], one_sided))
        states.append(torch.cat(parts))
    if stack.final_norm is not None:
        states[-1] = norm(stack.final_norm, states[-1])
    return states


def plain_block(block, config, layer, hidden, positions, one_sided):
    def attend(values):
        return linear(block.attention.output, mixed(block.attention, config, layer, values, positions, one_sided))

    def feed_forward(values):
        inner = linear(block.feed_forward.inner, values)
        if config.activation == "geglu":
            activated, gate = inner.chunk(2, dim=-1)
            return linear(block.feed_forward.output, F.gelu(activated) * gate)
        return linear(block.feed_forward.output, F.gelu(inner, approximate="tanh" if config.activation == "gelu_tanh" else "none"))

    if config.norm_position == "pre":
        hidden = hidden + attend(norm(block.attention_norm, hidden))
        return hidden + feed_forward(norm(block.feed_forward_norm, hidden))
    hidden = norm(block.attention_norm, hidden + attend(hidden))
    return norm(block.feed_forward_norm, hidden + feed_forward(hidden))


def mixed(attention, config, layer, values, positions, one_sided):
    """Attend with a loop over heads and a mask written entry by entry."""
    length, head_width = len(values), config.width // config.heads
    query, key, value = (linear(attention.qkv, values)[:, part * config.width : (part + 1) * config.width] for part in range(3))
    allowed = torch.ones(length, length, dtype=torch.bool)
    reach = None if config.local_window is None or layer % config.global_every == 0 else config.local_window // 2
    for i in range(length):
        for j in range(length):
            allowed[i, j] = (reach is None or abs(i - j) <= reach) and (not one_sided or j <= i)
    scale = 1 / math.sqrt(head_width)
    if config.width_scaling is not None:
        base = config.width_scaling.base_width / config.width_scaling.base_heads
        scale = math.sqrt(base) / head_width
    outputs = []
    for head in range(config.heads):
        part = slice(head * head_width, (head + 1) * head_width)
        one_query, one_key = query[:, part], key[:, part]
        if config.positions == "rotary":
            base = config.local_rotary_base if reach is not None and config.local_rotary_base is not None else config.rotary_base
            one_query, one_key = turned(one_query, positions, base), turned(one_key, positions, base)
        scores = (one_query @ one_key.T * scale).masked_fill(~allowed, -math.inf)
        outputs.append(scores.softmax(-1) @ value[:, part])
    return torch.cat(outputs, dim=-1)


def turned(values, positions, base):
    half = values.shape[-1] // 2
    angles = positions[:, None].double() / base ** (torch.arange(half).double() / half)[None, :]
    numbers = torch.complex(values[:, :half].double(), values[:, half:].double()) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([numbers.real, numbers.imag], dim=-1).to(values.dtype)


def linear(module, values):
    result = values @ module.weight.T
    return result if module.bias is None else result + module.bias


def norm(module, values):
    if isinstance(module, torch.nn.Identity):
        return values
    centred = values - values.mean(-1, keepdim=True)
    scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + module.eps).sqrt() * module.weight
    return scaled if module.bias is None else scaled + module.bias
