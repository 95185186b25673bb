"""Calibrated models in other libraries, where those need more than a `SentenceTransformer`."""
