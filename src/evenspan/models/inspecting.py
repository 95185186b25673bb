"""Look at a model before calibrating it: can it be calibrated, where, and how much of a document does it read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from sentence_transformers import SentenceTransformer

from evenspan.calibration import Calibration
from evenspan.core.baskets import PoolingToken
from evenspan.core.layers import is_causal
from evenspan.errors import UnsupportedModelError
from evenspan.formatting import count
from evenspan.models.calibrating import calibration_of
from evenspan.models.pipeline import Pipeline
from evenspan.models.reading import room_for_text

_POOLED_ROW = {"cls": "the first token", "last": "the last token", "mean": "the mean of all tokens"}


@dataclass(frozen=True)
class Inspection:
    """What `inspect_model` found; `print` it for people, `to_json` it for programs.

    Attributes:
        calibratable: whether `evenspan.calibrate` takes this model with this calibration.
        reason: why not, and what to do instead; None if it does.
        architecture: class of the transformers model.
        pooling: `"cls"` or `"last"`: which token the vector is read from; `"mean"`: from all of them.
        causal: whether tokens attend backwards only.
        layers: number of attention layers.
        full_attention_layers: those that see the whole passage and so can be calibrated.
        calibrated_layers: those that the calibration chooses.
        max_tokens: how many tokens the model reads; the rest is cut off.
        room: how many of them are left for text, besides special tokens and the model's own prompt.
        attention: the attention implementation that runs all other rows.
        dtype: of the weights.
        calibration: the setting that was asked about.
        current_calibration: what the model has now, None if it is plain.
    """

    calibratable: bool
    reason: str | None
    calibration: str
    current_calibration: str | None
    architecture: str | None = None
    pooling: PoolingToken | None = None
    causal: bool | None = None
    layers: int | None = None
    full_attention_layers: tuple[int, ...] = ()
    calibrated_layers: tuple[int, ...] = ()
    max_tokens: int | None = None
    room: int | None = None
    attention: str | None = None
    dtype: str | None = None

    def to_json(self) -> str:
        """All fields as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        rows = [("calibratable", "yes" if self.calibratable else f"no. {self.reason}")]
        if self.architecture is not None:
            rows.append(("architecture", f"{self.architecture}, {self.dtype}, attention: {self.attention}"))
        if self.pooling is not None:
            direction = "causal" if self.causal else "bidirectional"
            rows.append(("pooled row", f"{_POOLED_ROW[self.pooling]} ({direction} attention)"))
        if self.layers is not None:
            full = len(self.full_attention_layers)
            rows.append(("layers", f"{self.layers}, {full} with full attention"))
        if self.calibrated_layers:
            rows.append(("would calibrate", f"layers {_ranges(self.calibrated_layers)}  ({self.calibration})"))
        if self.max_tokens is not None and self.room is not None:
            total = f"({count(self.max_tokens)} with special tokens and prompt)"
            rows.append(("reads", f"{count(self.room)} tokens of text {total}; the rest is cut off"))
        rows.append(("calibration now", self.current_calibration or "none"))
        return "\n".join(f"{name + ':':<17}{text}" for name, text in rows)


def inspect_model(model: object, calibration: Calibration = Calibration()) -> Inspection:
    """Find out whether and how a model would be calibrated, without changing it.

    Example:
        >>> print(evenspan.inspect_model(evenspan.load("BAAI/bge-m3")))  # doctest: +SKIP
    """
    current = calibration_of(model) if isinstance(model, SentenceTransformer) else None
    facts: dict[str, Any] = {
        "calibration": str(calibration),
        "current_calibration": None if current is None else str(current),
    }
    try:
        pipeline = Pipeline.of(model)
        transformer = pipeline.transformer
        facts |= {
            "architecture": type(transformer.model).__name__,
            "attention": transformer.model.config._attn_implementation,
            "dtype": str(transformer.model.dtype).removeprefix("torch."),
            "max_tokens": transformer.max_seq_length,
            "room": room_for_text(model) if isinstance(model, SentenceTransformer) else None,
            "pooling": pipeline.pooling_token,
        }
        layers = pipeline.layers()
        facts |= {
            "causal": is_causal(layers.modules[0]),
            "layers": len(layers.modules),
            "full_attention_layers": layers.full,
        }
    except (TypeError, UnsupportedModelError) as error:
        return Inspection(calibratable=False, reason=str(error), **facts)
    try:
        chosen = layers.chosen_by(calibration)
    except ValueError as error:
        return Inspection(calibratable=False, reason=str(error), **facts)
    return Inspection(calibratable=True, reason=None, calibrated_layers=chosen, **facts)


def _ranges(indices: tuple[int, ...]) -> str:
    """Layer numbers as people write them: 3, 6–11."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
