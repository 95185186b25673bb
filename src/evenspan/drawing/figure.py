"""Figures: drawn once, kept as files, and set into the page in its own colours and letters."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from evenspan.drawing import palette

_PANEL = (4.5, 3.2)  # inches: small enough that letters stay readable when a phone shows it across its whole width
# Neither a date nor a version: the same figure is the same file.
_METADATA: dict[str, dict[str, str | None]] = {
    ".svg": {"Date": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None},
}
_COLOURS = dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), palette.MUTED) | {
    "figure.facecolor": palette.PAPER,
    "grid.color": palette.RULE,
    "text.color": palette.INK,
}


@dataclass(frozen=True)
class Panel:
    """One drawing of a figure: `draw` is given its axes."""

    title: str
    draw: Callable[[Any], None]
    height: float = _PANEL[1]


@dataclass(frozen=True)
class Figure:
    """A figure of a report, or of a file that stands alone."""

    key: str  # its name as a file, unique in a report
    title: str
    description: str  # the same in words, with the numbers that matter, for those who do not see it
    caption: str  # how to read it
    panels: tuple[Panel, ...]  # side by side where there is room
    columns: tuple[str, ...]  # of its data
    rows: tuple[tuple[str | float | int | None, ...], ...]
    subtitle: str = ""  # what an image must say that stands alone, without its caption


def save_image(figure: Figure, *paths: str | Path) -> None:
    """Write a figure in the format that each name asks for, such as `.svg` or `.png`."""
    with _styled(figure.key, letters="path"):
        drawn = _draw(figure.panels, f"{figure.title}: {figure.subtitle}" if figure.subtitle else figure.title)
        for path in paths:
            known = _METADATA.get(Path(path).suffix, {})
            drawn.savefig(path, dpi=160, metadata=known | {"Title": figure.title} if known else None)


def save(figure: Figure, folder: Path) -> None:
    """Write a figure as SVG and PNG, and its data as CSV."""
    save_image(figure, folder / f"{figure.key}.svg", folder / f"{figure.key}.png")
    with (folder / f"{figure.key}.csv").open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(figure.columns)
        writer.writerows(figure.rows)


def inline(figure: Figure) -> list[tuple[str, str]]:
    """Each panel, for the page: the view box and the inside of an SVG element."""
    drawings = []
    for place, panel in enumerate(figure.panels):
        with _styled(figure.key, letters="none"):
            text = io.StringIO()
            _draw((panel,)).savefig(text, format="svg", transparent=True, metadata={"Date": None})
        drawings.append(_for_the_page(text.getvalue(), f"{figure.key}-{place}"))
    return drawings


@contextmanager
def _styled(salt: str, letters: str) -> Iterator[None]:
    import matplotlib

    # `rc_context` alone would let a user's own style shine through.
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # leaves the back end alone
        matplotlib.rc_file(str(files("evenspan.drawing") / "figure.mplstyle"), use_default_template=False)
        parameters: Any = matplotlib.rcParams
        parameters.update(_COLOURS | {"svg.hashsalt": salt, "svg.fonttype": letters})
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _draw(panels: tuple[Panel, ...], title: str | None = None) -> Any:
    from matplotlib.figure import Figure as Canvas  # not pyplot, which would choose a back end for the whole process

    height = max(panel.height for panel in panels) + (0.35 if title else 0)
    canvas = Canvas(figsize=(_PANEL[0] * len(panels), height), layout="constrained")
    axes = canvas.subplots(1, len(panels), squeeze=False)[0]
    for place, panel in zip(axes, panels, strict=True):
        panel.draw(place)
        if title and panel.title and (legend := place.get_legend()):  # above the axes, where the title would be
            legend.set_title(panel.title, {"size": 10.5})
        elif title and panel.title:
            place.set_title(panel.title, color=palette.INK)
    if title:
        canvas.suptitle(title, fontsize=11.5, fontweight="bold")
    return canvas


def _for_the_page(svg: str, prefix: str) -> tuple[str, str]:
    """Only the drawing, with letters and colours of the page, and ids that no other drawing has."""
    box = re.search(r'viewBox="([\d. ]+)"', svg)
    if box is None:
        raise RuntimeError("matplotlib wrote an SVG without a view box.")
    content = svg[svg.index(">", box.end()) + 1 : svg.rindex("</svg>")]
    content = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", content, flags=re.DOTALL)
    tags = " ".join(re.findall(r"<[^>]+>", content))
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', tags))

    def change(match: re.Match[str]) -> str:  # tags only: the text between them is not ours
        tag = match[0].replace("xlink:href=", "href=")
        tag = re.sub(r' id="([^"]+)"', lambda name: f' id="{prefix}-{name[1]}"' if name[1] in used else "", tag)
        tag = re.sub(r'(url\(|href=")#', rf"\1#{prefix}-", tag)
        tag = re.sub(r"font-family: [^;\"]+;? ?", "", tag)
        tag = re.sub(r"font: ([^;\"]*?)([\d.]+px) [^;\"]+", r"font-size: \2", tag)  # as older matplotlib has it
        return re.sub(r"\s+", " ", palette.by_variables(tag))

    content = re.sub(r"<[^>]+>", change, content)
    return box[1], re.sub(r">\s+<", ">\n<", content).strip()
