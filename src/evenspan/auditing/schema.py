"""The parts of an audit; each refuses figures that contradict each other, so that a damaged file is noticed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Interval = tuple[float, float]
Bias = Literal["primacy", "recency", "both ends", "middle", "none found"]
Degree = Literal["mild", "strong"]


@dataclass(frozen=True)
class CutDocument:
    """A document that the model does not read to its end: `opening` is its first words."""

    name: str
    tokens: int
    unread: int
    opening: str


@dataclass(frozen=True)
class Truncation:
    """What the model never reads, because it stops at its maximum length."""

    documents: int  # how many were looked at
    cut: int  # how many of them are longer than what the model reads
    tokens: int  # of all of them together, special tokens and prompt not counted
    unread: int  # how many of those tokens stand behind the cut
    room: int  # how many tokens of a document the model reads
    longest: int  # tokens of the longest document
    worst: tuple[CutDocument, ...] = ()  # the documents that lose most

    def __post_init__(self) -> None:
        if self.cut > self.documents or self.unread > self.tokens:
            raise ValueError("more is cut off than there is")


@dataclass(frozen=True)
class LayerAttention:
    """The pooling token's attention in one layer, over documents and heads."""

    layer: int  # its number, from 0
    calibrated: bool
    # What the pooling token gives itself, in a mean-pooled model what tokens give those that stand alone: 5th, 25th, 50th,
    # 75th and 95th percentile.
    self_mass: tuple[float, ...]
    mean_self_mass: float
    first_mass: float | None  # the mean mass of an isolated first token, if there is another one that stands alone
    baskets: tuple[float, ...]  # the mean mass of each basket, over the documents that have it

    def __post_init__(self) -> None:
        if len(self.self_mass) != 5:
            raise ValueError(f"a layer has {len(self.self_mass)} percentiles of its self-mass, not 5")


@dataclass(frozen=True)
class Attention:
    """Where the pooling token looks, in every layer in which it sees the whole passage."""

    basket_size: int  # in tokens
    basket_documents: tuple[int, ...]  # how many documents have each basket
    layers: tuple[LayerAttention, ...]
    # Whether these are means over all tokens of a document, in a mean-pooled model.
    every_row: bool = field(default=False, metadata={"since": "0.1"})

    def __post_init__(self) -> None:
        if self.basket_size < 1 or not self.layers or not self.basket_documents:
            raise ValueError("its attention is empty")
        if any(len(layer.baskets) != len(self.basket_documents) for layer in self.layers):
            raise ValueError("a layer has another number of baskets than the documents")


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % bootstrap interval over documents."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class Representation:
    """How much each position is reflected in the vector of the whole."""

    documents: int  # how many were cut into segments
    positions: tuple[Estimate, ...]  # the cosine with the whole, at each position, of a segment of average content
    slope: Estimate  # its change from the beginning to the end of a document, by a straight line; negative is primacy
    primacy: Estimate  # how much more the first position is reflected than those in between
    recency: Estimate  # how much more the last one is
    relative_slope: Estimate  # in units of what content makes: the standard deviation over a document's segments
    bias: Bias  # the verdict
    degree: Degree | None  # how large it is; None if none was found

    def __post_init__(self) -> None:
        if (self.degree is None) != (self.bias == "none found"):
            raise ValueError(f"{self.degree} {self.bias} is no verdict")
        if len(self.positions) < 2:
            raise ValueError("there are fewer than two positions")

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
class AuditFigures:
    """Everything that an audit measures, and everything needed to repeat it.

    Attributes:
        model: its name.
        calibration: the setting that was tried; None if there was none.
        truncation: what is never read.
        plain: the model as it is.
        calibrated: the same under the calibration; None without one.
        slope_change: calibrated minus plain slope, over the same documents.
        notes: what to know before trusting a figure, what could not be looked at and why.
        setting: model, revision, versions, sample, seed.
        intact: where the plain model looks in the documents as they are; None where that was not asked for.
    """

    model: str
    calibration: str | None
    truncation: Truncation
    plain: View
    calibrated: View | None
    slope_change: Estimate | None
    notes: tuple[str, ...]
    setting: Mapping[str, Any] = field(default_factory=dict)
    intact: Attention | None = field(default=None, metadata={"since": "0.1"})

    @property
    def representations(self) -> tuple[Representation | None, Representation | None]:
        """Of the plain model, and under the calibration."""
        return self.plain.representation, self.calibrated.representation if self.calibrated else None
