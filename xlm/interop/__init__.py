"""To and from transformers: tokenizers, weights, model folders."""
