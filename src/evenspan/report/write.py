"""From sources to a page and its figures on disk."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from evenspan.drawing.figure import save
from evenspan.errors import require_extra
from evenspan.evaluation.cache import write_whole
from evenspan.report.load import Material, read_sources
from evenspan.report.page import page, sections, together

_FIGURE = re.compile(r"(m\d+-(audit|evaluation|advice)\d+|models)-[\w-]+\.(svg|png|csv)")


def write_report(sources: Iterable[str | Path] | str | Path | Material, output: str | Path = "report.html") -> Path:
    """Write a single HTML report about audits, evaluations, sweeps, tuning and advice, and every figure beside it.

    Figures go to a folder named after the page, `report_figures` for `report.html`: as SVG, as PNG, and their data as
    CSV. The same sources give the same files.

    Args:
        sources: files and folders written by `audit`, `evaluate`, `sweep`, `tune` and `advise`, or what `read_sources` made.
        output: the page; missing folders are created once there is something to write.

    Returns:
        The path of the page.

    Raises:
        MissingExtraError: matplotlib is not installed.
        FileNotFoundError: a source does not exist.
        OSError: the page cannot be written there; raised before anything is read.
        ValueError: there is nothing to report in the sources, or the output is an existing file that is not HTML.

    Example:
        >>> write_report(["audit/", "results/"], "report.html")  # doctest: +SKIP
    """
    check_output(output)
    target = Path(output)
    folder = _figures_of(target)
    named = [sources] if isinstance(sources, (str, Path)) else sources
    material = named if isinstance(named, Material) else read_sources(named)
    content = sections(material)
    shared = together(material)
    text = page(material, content, folder.name, shared)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():  # figures of an earlier report that this one may not have
        if _FIGURE.fullmatch(old.name):
            old.unlink()
    figures = [figure for section in content for part in section.parts for figure, _ in part.figures]
    for figure in [*figures, *(figure for figure, _ in shared)]:
        save(figure, folder)
    write_whole(target, text.encode())
    return target


def check_output(output: str | Path) -> None:
    """Refuse a place where no report can be written, and an installation that cannot draw; call it before any work."""
    require_extra("report", "A report", "matplotlib")
    target = Path(output)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: give a file, such as {target / 'report.html'}.")
    if target.exists() and target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{target} exists and is not an HTML page: choose an .html file.")
    for needed in (target.absolute().parent, _figures_of(target.absolute())):
        there = next(folder for folder in (needed, *needed.parents) if folder.exists())
        if not there.is_dir():
            raise NotADirectoryError(
                f"{there} is a file where a folder is needed: choose another place for the report."
            )
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(f"Cannot write to {there}: choose another place for the report.")


def _figures_of(target: Path) -> Path:
    return target.with_name(f"{target.stem}_figures")
