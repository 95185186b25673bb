"""Texts to vectors, for everybody: `Encoder`, and `encode_documents` for users."""

from evenspan.encoding.documents import encode_documents
from evenspan.encoding.encoder import Encoder, unit_length
from evenspan.encoding.standing import ReadyText, StandingEncoder
from evenspan.encoding.truncation import Truncated, truncation
from evenspan.models.budget import BATCH_TOKENS

__all__ = [
    "BATCH_TOKENS", "Encoder", "ReadyText", "StandingEncoder", "Truncated", "encode_documents", "truncation", "unit_length",
]  # fmt: skip
