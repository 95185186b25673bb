"""See the bias of a model on documents without labels."""

from __future__ import annotations

from evenspan.auditing.result import (
    Attention,
    Audit,
    CutDocument,
    Estimate,
    LayerAttention,
    Representation,
    Truncation,
    View,
)

__all__ = [
    "Attention",
    "Audit",
    "CutDocument",
    "Estimate",
    "LayerAttention",
    "Representation",
    "Truncation",
    "View",
]
