"""Token shards and row plans: text as ids on disk, memory-mapped, and which pieces share a row. No torch here."""
