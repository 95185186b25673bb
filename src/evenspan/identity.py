"""Which model, weights and versions these are."""
