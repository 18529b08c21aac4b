"""The encoder: embeddings, attention without padding, blocks, heads, pooling, initialisation, presets."""
