"""What a model is called with, batch by batch, whoever calls it; and memory that runs out."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer


def watch(monkeypatch: Any, *, most: int | None = None) -> list[dict[str, Any]]:
    """The features and options of every batch of any model, in order; memory runs out with more texts than `most`."""
    calls: list[dict[str, Any]] = []
    call = SentenceTransformer.__call__

    def remembering(self: SentenceTransformer, features: dict[str, Any], **options: Any) -> Any:
        calls.append({**features, **options})
        made = call(self, features, **options)
        if most is not None and rows(calls[-1]) > most:
            raise torch.OutOfMemoryError("no room")
        return made

    monkeypatch.setattr(SentenceTransformer, "__call__", remembering)
    return calls


def rows(call: dict[str, Any]) -> int:
    """How many texts a batch has."""
    if "cu_seq_lens_q" in call:
        return len(call["cu_seq_lens_q"]) - 1
    return len(call["input_ids"])


def sizes(calls: list[dict[str, Any]]) -> list[int]:
    """How many texts each batch had."""
    return [rows(call) for call in calls]
