"""Which rows are in which global batch: sampling weights, the count tree, the row bijection, the data plan. No torch here."""
