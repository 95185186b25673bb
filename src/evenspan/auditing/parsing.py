"""Read dataclasses back from JSON, which somebody may have damaged or made up."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def parse(hint: Any, value: Any) -> Any:
    """The value that a type hint asks for, from what its JSON was read to.

    A number is finite, an `int` is a count. Every field must be there but those that came later (`metadata["since"]`); what
    is no field is ignored.

    Raises:
        KeyError: a field is missing.
        TypeError: a value is of another type.
        ValueError: values of one dataclass contradict each other.
    """
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        there = [
            field.name for field in dataclasses.fields(hint) if field.name in value or "since" not in field.metadata
        ]
        return hint(**{name: parse(hints[name], value[name]) for name in there})
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):  # of something and None
        return None if value is None else parse(arguments[0], value)
    if origin is tuple and isinstance(value, list | tuple):
        each = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return tuple(parse(inner, item) for inner, item in zip(each, value, strict=True))
    if not _fits(hint, origin, value):
        raise TypeError(f"{value!r} stands where {getattr(hint, '__name__', hint)} should")
    return float(value) if hint is float else value


def _fits(hint: Any, origin: Any, value: Any) -> bool:
    if origin is Literal:
        return value in get_args(hint)
    if origin is Mapping:
        return isinstance(value, dict)
    if isinstance(value, bool) or hint is str:
        return hint in (str, bool) and isinstance(value, hint)
    if hint is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return hint is int and isinstance(value, int) and 0 <= value < 2**62
