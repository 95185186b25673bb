"""Options and arguments with checked values; an error names the option, its bounds and what was given."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import typer

from evenspan.calibration import Calibration

LARGEST = 10**9  # of whole numbers without a bound of their own
Parser = Callable[[Any], Any]


class BadOptionError(Exception):
    """An option with a value that it cannot have.

    No `ValueError`: typer would replace the message of one.
    """


def number(option: str, about: str, at_least: int = 1, at_most: int = LARGEST) -> Any:
    """An option that takes a whole number."""

    def parse(value: object) -> int:
        try:
            whole = int(str(value))
        except ValueError:
            whole = at_least - 1
        if not at_least <= whole <= at_most:
            bounds = f"of at least {at_least:,}" if at_most >= LARGEST else f"between {at_least:,} and {at_most:,}"
            bounds = f"of at most {at_most:,}" if whole > at_most >= LARGEST else bounds
            raise BadOptionError(f"{option} must be a whole number {bounds}, not {str(value)!r}.")
        return whole

    return typer.Option(option, metavar="N", help=about, parser=parse)


def share(option: str, about: str, *, with_ends: bool = False) -> Any:
    """An option that takes a number between 0 and 1."""

    def parse(value: object) -> float:
        try:
            part = float(str(value))
        except ValueError:
            part = math.nan
        if not (0 <= part <= 1 if with_ends else 0 < part < 1):
            ends = ", 0 and 1 included" if with_ends else ""
            raise BadOptionError(f"{option} must be a number between 0 and 1{ends}, not {str(value)!r}.")
        return part

    return typer.Option(option, metavar="SHARE", help=about, parser=parse)


def choice(option: str, about: str, *names: str) -> Any:
    """An option, or where it has no dashes an argument, that takes one of a few names; the shell completes them."""

    def parse(value: object) -> str:
        if value not in names:
            raise BadOptionError(f"{option} must be {', '.join(names[:-1])} or {names[-1]}, not {str(value)!r}.")
        return str(value)

    if not option.startswith("-"):
        return typer.Argument(metavar=option, help=about, parser=parse, autocompletion=lambda: list(names))
    return typer.Option(option, metavar="|".join(names), help=about, parser=parse, autocompletion=lambda: list(names))


def text(option: str, metavar: str, about: str, *, may_be_empty: bool = False) -> Any:
    """An option, or where it has no dashes an argument, that takes a name or a sentence."""

    def parse(value: object) -> str:
        words = _value(option, value, may_be_empty=may_be_empty)
        if words.encode("utf-8", "replace").decode("utf-8") != words:
            raise BadOptionError(f"{option} holds bytes that are no UTF-8 text: write it in UTF-8.")
        return words

    return _parameter((option,), metavar, about, parse)


def location(option: str, metavar: str, about: str, *short: str) -> Any:
    """The same for the name of a file or folder, which may hold any bytes."""
    return _parameter((option, *short), metavar, about, lambda value: _value(option, value))


def path(option: str, metavar: str, about: str, *short: str) -> Any:
    """The same, as a path."""
    return _parameter((option, *short), metavar, about, lambda value: Path(_value(option, value)))


def parsed(option: str, metavar: str, about: str, parser: Parser) -> Any:
    """An option with a parser of its own, whose errors are those of the option."""

    def parse(value: Any) -> Any:
        try:
            return parser(value)
        except (TypeError, ValueError) as error:
            raise BadOptionError(f"{option}: {error}") from None

    return typer.Option(option, metavar=metavar, help=about, parser=parse)


def calibration(value: Calibration | str) -> Calibration:
    """A calibration from its string."""
    return value if isinstance(value, Calibration) else Calibration.parse(value)


def calibration_or_none(value: Calibration | str) -> Calibration | Literal["none"]:
    """The same, or `none` for the plain model."""
    return "none" if value == "none" else calibration(value)


def name_and_value(pair: str) -> str:
    """`NAME=VALUE`, as it is."""
    name, equals, _ = pair.partition("=")
    if not (name and equals):
        raise ValueError(f"write it as NAME=VALUE, such as tiny=true, not {pair!r}.")
    return pair


def _parameter(names: tuple[str, ...], metavar: str, about: str, parser: Parser) -> Any:
    if names[0].startswith("-"):
        return typer.Option(*names, metavar=metavar, help=about, parser=parser)
    return typer.Argument(metavar=metavar, help=about, parser=parser)


def _value(option: str, value: object, *, may_be_empty: bool = False) -> str:
    words = str(value)
    if words.startswith("--") and " " not in words:
        raise BadOptionError(f"{option} needs a value, and {words!r} looks like another option.")
    if not words.strip() and not may_be_empty:
        raise BadOptionError(f"{option} is empty: give it a value.")
    return words
