"""Texts to vectors, for everybody."""
