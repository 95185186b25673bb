"""Indexing on many GPUs and machines."""
