"""From the text of an option to its value; the error names the option, its bounds and what was given."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from evenspan.calibration import Calibration

LARGEST = 10**9  # of whole numbers without a bound of their own


class BadOptionError(Exception):
    """An option with a value that it cannot have.

    No `ValueError`: typer would replace the message of one.
    """


def whole(option: str, at_least: int = 1, at_most: int = LARGEST) -> Callable[[object], int]:
    """A parser of whole numbers."""

    def parse(value: object) -> int:
        try:
            number = int(str(value))
        except ValueError:
            number = None
        if number is None or not at_least <= number <= at_most:
            bounds = f"of at least {at_least:,}" if at_most >= LARGEST else f"between {at_least:,} and {at_most:,}"
            if number is not None and number > at_most >= LARGEST:
                bounds = f"of at most {at_most:,}"
            raise BadOptionError(f"{option} must be a whole number {bounds}, not {value}.")
        return number

    return parse


def share(option: str, *, with_ends: bool) -> Callable[[object], float]:
    """A parser of numbers between 0 and 1."""

    def parse(value: object) -> float:
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        if not (0 <= number <= 1 if with_ends else 0 < number < 1):
            ends = ", 0 and 1 included" if with_ends else ""
            raise BadOptionError(f"{option} must be a number between 0 and 1{ends}, not {value}.")
        return number

    return parse


def choice(option: str, *names: str) -> Callable[[object], str]:
    """A parser of one of a few names."""

    def parse(value: object) -> str:
        if value not in names:
            raise BadOptionError(f"{option} must be {', '.join(names[:-1])} or {names[-1]}, not {str(value)!r}.")
        return str(value)

    return parse


def text(option: str, *, may_be_empty: bool = False) -> Callable[[object], str]:
    """A parser of names and prompts: no option that was taken for a value, and no bytes that are not UTF-8."""

    def parse(value: object) -> str:
        words = str(value)
        _refuse_option(option, words)
        if not words.strip() and not may_be_empty:
            raise BadOptionError(f"{option} is empty: leave it out, or give it a value.")
        if words.encode("utf-8", "replace").decode("utf-8") != words:
            raise BadOptionError(f"{option} holds bytes that are no UTF-8 text.")
        return words

    return parse


def location(option: str) -> Callable[[object], str]:
    """A parser of the names of files and folders, which may hold any bytes."""

    def parse(value: object) -> str:
        _refuse_option(option, str(value))
        if not str(value):
            raise BadOptionError(f"{option} is empty: leave it out, or name a file or folder.")
        return str(value)

    return parse


def path(option: str) -> Callable[[object], Path]:
    """The same, as a path."""
    return lambda value: Path(location(option)(value))


def calibration(value: object) -> Calibration:
    """A calibration from its string, with its own words in the error."""
    try:
        return value if isinstance(value, Calibration) else Calibration.parse(str(value))
    except (TypeError, ValueError) as error:
        raise BadOptionError(f"--calibration: {error}") from None


def calibration_or_none(value: object) -> Calibration | Literal["none"]:
    """The same, or `none` for the plain model."""
    return "none" if value == "none" else calibration(value)


def name_and_value(pair: object) -> str:
    """`NAME=VALUE`, as it is."""
    name, equals, _ = str(pair).partition("=")
    if not (name and equals):
        raise BadOptionError(f"--option needs the form NAME=VALUE, such as tiny=true, not {str(pair)!r}.")
    return str(pair)


def _refuse_option(option: str, value: str) -> None:
    if value.startswith("--") and " " not in value:
        raise BadOptionError(f"{option} needs a value, and {value!r} looks like another option.")
