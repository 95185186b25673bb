"""Read an audit back from a file, which somebody may have damaged or made up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args

from evenspan.auditing.schema import (
    Attention,
    Audit,
    Bias,
    CutDocument,
    Degree,
    Estimate,
    LayerAttention,
    Representation,
    Truncation,
    View,
)

Item = TypeVar("Item")


def parse(values: Mapping[str, Any]) -> Audit:
    """An audit from what its JSON was read to."""
    try:
        return _audit(values)
    except (AttributeError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"This is no whole audit: {type(error).__name__}: {error}.") from error


def _audit(values: Mapping[str, Any]) -> Audit:
    setting = values["setting"]
    if not isinstance(setting, dict):
        raise TypeError("its setting is no object")
    return Audit(
        model=_text(values["model"]),
        calibration=_maybe(_text, values["calibration"]),
        truncation=_truncation(values["truncation"]),
        plain=_view(values["plain"]),
        calibrated=_maybe(_view, values["calibrated"]),
        slope_change=_maybe(_estimate, values["slope_change"]),
        notes=tuple(_text(note) for note in _list(values["notes"])),
        setting=setting,
    )


def _truncation(values: Mapping[str, Any]) -> Truncation:
    counts = {name: _count(values[name]) for name in ("documents", "cut", "tokens", "unread", "room", "longest")}
    worst = tuple(
        CutDocument(_text(one["name"]), _count(one["tokens"]), _count(one["unread"]), _text(one["opening"]))
        for one in _list(values["worst"])
    )
    if not counts["cut"] <= counts["documents"] or not counts["unread"] <= counts["tokens"]:
        raise TypeError("more is cut off than there is")
    return Truncation(**counts, worst=worst)


def _view(values: Mapping[str, Any]) -> View:
    return View(_maybe(_attention, values["attention"]), _maybe(_representation, values["representation"]))


def _attention(values: Mapping[str, Any]) -> Attention:
    documents = tuple(_count(one) for one in _list(values["basket_documents"]))
    layers = []
    for one in _list(values["layers"]):
        layer = LayerAttention(
            layer=_count(one["layer"]),
            calibrated=bool(one["calibrated"]),
            self_mass=tuple(_number(value) for value in _list(one["self_mass"])),
            mean_self_mass=_number(one["mean_self_mass"]),
            first_mass=_maybe(_number, one["first_mass"]),
            baskets=tuple(_number(value) for value in _list(one["baskets"])),
        )
        if len(layer.self_mass) != 5 or len(layer.baskets) != len(documents):
            raise TypeError("a layer has another number of percentiles or baskets")
        layers.append(layer)
    if not layers or not documents:
        raise TypeError("its attention is empty")
    return Attention(max(1, _count(values["basket_size"])), documents, tuple(layers))


def _representation(values: Mapping[str, Any]) -> Representation:
    bias, degree = values["bias"], values["degree"]
    if (
        bias not in get_args(Bias)
        or degree not in (None, *get_args(Degree))
        or (degree is None) != (bias == "none found")
    ):
        raise TypeError(f"{degree} {bias} is no verdict")
    positions = tuple(_estimate(one) for one in _list(values["positions"]))
    if len(positions) < 2:
        raise TypeError("there are fewer than two positions")
    figures = {name: _estimate(values[name]) for name in ("slope", "primacy", "recency", "relative_slope")}
    return Representation(
        documents=_count(values["documents"]), positions=positions, bias=bias, degree=degree, **figures
    )


def _estimate(values: Mapping[str, Any]) -> Estimate:
    low, high = _list(values["interval"])
    return Estimate(_number(values["value"]), (_number(low), _number(high)))


def _maybe(read: Callable[[Any], Item], value: Any) -> Item | None:
    return None if value is None else read(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise TypeError(f"{value!r} is no count")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{value!r} is no list")
    return list(value)
