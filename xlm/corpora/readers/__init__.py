"""Readers: one file a kind of source. Each yields `RawText` and `RawPair` and counts what it leaves out."""
