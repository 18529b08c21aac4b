"""From rows to batches: masking, objectives, packed batches, and the loader that feeds a rank."""
