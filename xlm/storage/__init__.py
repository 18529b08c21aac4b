"""A shards folder wherever it lies: on a disk of this machine, or at any fsspec URL behind a bounded cache. No torch here."""
