"""From manifests to clean text: read, normalise, filter, deduplicate, keep evaluation text out."""
