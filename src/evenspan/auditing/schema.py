"""What an audit found, and everything needed to repeat it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Interval = tuple[float, float]
Bias = Literal["primacy", "recency", "both ends", "middle", "none found"]
Degree = Literal["mild", "strong"]
KIND = "audit"  # what a file of an audit says it is


@dataclass(frozen=True)
class CutDocument:
    """A document that the model does not read to its end: `opening` is its first words."""

    name: str
    tokens: int
    unread: int
    opening: str


@dataclass(frozen=True)
class Truncation:
    """What the model never reads, because it stops at its maximum length.

    Attributes:
        documents: how many were looked at.
        cut: how many of them are longer than what the model reads.
        tokens: of all of them together, special tokens and prompt not counted.
        unread: how many of those tokens stand behind the cut.
        room: how many tokens of a document the model reads.
        longest: tokens of the longest document.
        worst: the documents that lose most.
    """

    documents: int
    cut: int
    tokens: int
    unread: int
    room: int
    longest: int
    worst: tuple[CutDocument, ...] = ()


@dataclass(frozen=True)
class LayerAttention:
    """The pooling token's attention in one layer, over documents and heads.

    Attributes:
        layer: its number, from 0.
        calibrated: whether this layer was calibrated.
        self_mass: what the pooling token gives itself: 5th, 25th, 50th, 75th and 95th percentile.
        mean_self_mass: its mean.
        first_mass: the mean mass of an isolated first token (last-token pooling only).
        baskets: the mean mass of each basket, over the documents that have it.
    """

    layer: int
    calibrated: bool
    self_mass: tuple[float, ...]
    mean_self_mass: float
    first_mass: float | None
    baskets: tuple[float, ...]


@dataclass(frozen=True)
class Attention:
    """Where the pooling token looks, layer by layer.

    Attributes:
        basket_size: tokens in a basket.
        basket_documents: how many documents have each basket.
        layers: every layer in which the pooling token sees the whole passage.
    """

    basket_size: int
    basket_documents: tuple[int, ...]
    layers: tuple[LayerAttention, ...]


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % bootstrap interval over documents."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class Representation:
    """How much each position is reflected in the vector of the whole.

    Attributes:
        documents: how many were cut into segments.
        positions: the cosine of a segment with the whole, for a segment of average content, at each position.
        slope: its change from the beginning to the end of a document, by a straight line; negative is primacy.
        primacy: how much more the first position is reflected than those in between.
        recency: how much more the last one is.
        relative_slope: the slope in units of what content makes: the standard deviation over a document's segments.
        bias: the verdict.
        degree: how large it is; None if none was found.
    """

    documents: int
    positions: tuple[Estimate, ...]
    slope: Estimate
    primacy: Estimate
    recency: Estimate
    relative_slope: Estimate
    bias: Bias
    degree: Degree | None

    @property
    def verdict(self) -> str:
        """The bias in words, such as `strong primacy`."""
        return self.bias if self.degree is None else f"{self.degree} {self.bias}"


@dataclass(frozen=True)
class View:
    """What one way of encoding shows: plain, or calibrated."""

    attention: Attention | None
    representation: Representation | None


@dataclass(frozen=True)
class Audit:
    """What `evenspan.audit` found; `print` it for people, `write` it for programs and for `evenspan report`.

    Attributes:
        model: its name.
        calibration: the setting that was tried; None if there was none.
        truncation: what is never read.
        plain: the model as it is.
        calibrated: the same under the calibration; None without one.
        slope_change: calibrated minus plain slope, over the same documents.
        notes: what to know before trusting a figure, what could not be looked at and why.
        setting: model, revision, versions, sample, seed.
    """

    model: str
    calibration: str | None
    truncation: Truncation
    plain: View
    calibrated: View | None
    slope_change: Estimate | None
    notes: tuple[str, ...]
    setting: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """All fields, and what kind of file this is."""
        return json.dumps({"kind": KIND, **asdict(self)}, indent=2, ensure_ascii=False, allow_nan=False)

    def write(self, path: str | Path) -> None:
        """Write the audit as JSON, whole or not at all."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_name(target.name + ".part")
        try:
            half.write_text(self.to_json() + "\n", encoding="utf-8")
            half.replace(target)
        finally:
            half.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: str | Path) -> Audit:
        """An audit from a file that `write` made."""
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.get("kind") != KIND:
            raise ValueError(f"{path} is no audit: `evenspan audit` writes one.")
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Audit:
        """The inverse of `to_json`, from what it was read to; raises a `ValueError` if it is not that."""
        from evenspan.auditing.parsing import parse

        return parse(values)

    def __str__(self) -> str:
        from evenspan.auditing.findings import describe

        return describe(self)
