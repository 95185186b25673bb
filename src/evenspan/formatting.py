"""Numbers and names as people read them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePath, PureWindowsPath

from evenspan.calibration import Calibration

LAYER_NAMES = {"half": "half of the layers", "last": "last layer", "all": "all layers"}
# HTML forbids them, and lone surrogates can be neither written nor drawn.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LATEX = str.maketrans({"_": r"\_", "%": r"\%", "*": r"$^{*}$"})

Cells = Sequence[Sequence[str]]  # of a table, its header first


def count(value: float) -> str:
    """1,234."""
    return f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """1 document, 1,234 documents."""
    return f"{count(number)} {noun}{'s' * (number != 1)}"


def share(part: float, whole: float) -> str:
    """A share as a percentage, never rounded to nothing or to all."""
    if not whole or not part:
        return "0 %"
    percent = 100 * part / whole
    if percent < 0.1:
        return "under 0.1 %"
    if percent < 10:
        return f"{percent:.1f} %"
    return f"{min(percent, 99.9):.1f} %" if 99 < percent < 100 else f"{percent:.0f} %"


def signed(value: float, digits: int = 3) -> str:
    """With its sign, and a real minus."""
    text = f"{value:+.{digits}f}"
    return (text.lstrip("+-") if float(text) == 0 else text).replace("-", "−")


def plain(value: float, digits: int = 3) -> str:
    """With a real minus, and without a plus."""
    return signed(value, digits).removeprefix("+")


def points(value: float) -> str:
    """A difference of scores between 0 and 1, in points of 100."""
    return signed(100 * value, 1)


def interval(low: float, high: float) -> str:
    """An interval by its ends."""
    return f"{signed(low)} to {signed(high)}"


def model_name(name: str) -> str:
    """The last part of a folder's path; a name on the hub as it is."""
    path = PureWindowsPath(name) if "\\" in name else PurePath(name)
    return path.name if path.is_absolute() and path.name else name


def calibration_named(method: str) -> Calibration | None:
    """The calibration that a method's name spells, None for a baseline and the plain model."""
    try:
        return Calibration.parse(method)
    except ValueError:
        return None


def is_baseline(method: str) -> bool:
    """Whether a method is neither the plain model nor a calibration of it."""
    return method != "none" and calibration_named(method.partition(" (")[0]) is None


def method_name(method: str) -> str:
    """A method in few words, such as `soft λ 0.5, half of the layers`; a remark in brackets stays behind it."""
    if method == "none":
        return "plain"
    first, plus, second = method.partition("+")
    if plus:  # a baseline together with a calibration, or two that are fused
        return f"{tame(first)} + {method_name(second)}"
    spelled, bracket, remark = method.partition(" (")
    calibration = calibration_named(spelled)
    if calibration is None:
        return tame(method)
    layers = LAYER_NAMES.get(str(calibration.layers), f"layers {calibration.layers}")
    even = "even " if calibration.partition == "even" else ""
    baskets = f"{even}baskets of {calibration.basket_size}"
    parts = [f"{calibration.variant} λ {calibration.strength:g}", layers, baskets]
    parts += [f"self-mass {calibration.self_mass:g}"] if calibration.variant == "hard" else []
    parts += [f"first token {calibration.first_token}"] if calibration.first_token is not None else []
    return tame(", ".join(parts) + bracket + remark)


def tame(name: str) -> str:
    """A name of others that can stand in a sentence: without characters that turn the direction of what follows."""
    return _DIRECTIONS.sub("", printable(name))


def printable(text: str) -> str:
    """Text with a replacement character for each one that no page and no font can show."""
    return _UNPRINTABLE.sub("\ufffd", text)


def clipped(text: str, most: int) -> str:
    """Text that fits where there is little room."""
    return text if len(text) <= most else text[: most - 1] + "…"


def text_table(cells: Cells, texts: Collection[int] = (0,)) -> str:
    """A table for the terminal: the columns at the places `texts` are aligned left, all others right, as numbers are."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligned = [
        [cell.ljust(width) if place in texts else cell.rjust(width) for place, (cell, width) in enumerate(columns)]
        for columns in (zip(row, widths, strict=True) for row in cells)
    ]
    aligned.insert(1, ["─" * width for width in widths])
    return "\n".join("  ".join(row).rstrip() for row in aligned)


def markdown_table(cells: Cells, texts: Collection[int] = (0,)) -> str:
    """The same in Markdown."""
    rule = ["---" if place in texts else "---:" for place in range(len(cells[0]))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (cells[0], rule, *cells[1:]))


def latex_table(cells: Cells, columns: str, notes: Iterable[str] = ()) -> str:
    """The same in LaTeX, for `booktabs`; `columns` are those of `tabular`. Notes are comments below it."""
    header, *lines = (" & ".join(row).translate(_LATEX) + r" \\" for row in cells)
    start = rf"\begin{{tabular}}{{{columns}}}"
    return "\n".join(
        [
            start,
            r"\toprule",
            header,
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            *(f"% {note}" for note in notes),
        ]
    )


def listed(names: list[str]) -> str:
    """`a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
