"""Colours that can be told apart by colour-blind people, for light and for dark pages.

Figures are drawn in the light colours. On the page every one of them becomes a CSS variable, which the page sets for
light, dark and print: so each colour must occur here once.
"""

from __future__ import annotations

import re

INK, MUTED, RULE, PAPER = "#1c2430", "#56606e", "#d3d9e0", "#fffffe"
PLAIN, CALIBRATED = "#b8430a", "#1a5ba6"
METHODS = (PLAIN, CALIBRATED, "#0b7a67", "#8431a8", "#7a6200", "#5c6672")
MARKERS = ("o", "s", "^", "D", "v", "P")
POSITIONS = {"beginning": "#b8430b", "middle": "#0b7a68", "end": "#1a5ba7"}

_DARK = {
    INK: "#e8edf3",
    MUTED: "#a8b3c0",
    RULE: "#3a4553",
    PAPER: "#171d25",
    PLAIN: "#ff9d5c",
    CALIBRATED: "#7db8ff",
    METHODS[2]: "#4fd1b8",
    METHODS[3]: "#d9a1f5",
    METHODS[4]: "#e3c94a",
    METHODS[5]: "#b4bec9",
    POSITIONS["beginning"]: "#ff9d5d",
    POSITIONS["middle"]: "#4fd1b9",
    POSITIONS["end"]: "#7db8fe",
}
_NAMES = {colour: f"--f{place}" for place, colour in enumerate(_DARK)}


def variables(*, dark: bool) -> str:
    """The CSS declarations of all colours of figures."""
    return "".join(f"{name}:{_DARK[colour] if dark else colour};" for colour, name in _NAMES.items())


def by_variables(svg: str) -> str:
    """A drawing whose colours are those of the page it stands on."""
    return re.sub(rf"({'|'.join(_NAMES)})\b", lambda colour: f"var({_NAMES[colour[0]]})", svg)
