"""`evenspan report`: audits, evaluations and sweeps on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from evenspan.cli import extras
from evenspan.cli.display import Display
from evenspan.cli.files import check_file
from evenspan.cli.parsing import BadOptionError, location, path

_SOURCES = "What `evenspan audit`, `evaluate` and `sweep` wrote: files, or folders, which are searched with all below."

_Sources = Annotated[list[str], location("DIR|FILE", "DIR|FILE…", _SOURCES)]
_Page = Annotated[Path, path("--output", "FILE", "Where the page goes.", "-o")]


def report(*, sources: _Sources, output: _Page = Path("report.html"), display: Display) -> None:
    """Audits, evaluations and sweeps on one page for people.

    Writes one self-contained HTML page: a summary in plain words, figures, tables, settings and versions. It needs no network
    and runs no scripts. Every figure is also written as SVG and PNG, with its data as CSV, to a folder beside the page.
    """
    extras.for_figures("A report")
    check_file("--output", output, example="report.html")
    if output.exists() and output.suffix.lower() not in (".html", ".htm"):
        raise BadOptionError(
            f"--output: {output} is there and no page: name an .html file, so that nothing else is written over."
        )
    from evenspan.report import read_sources, write_report

    material = read_sources(sources)
    for file, reason in material.skipped:
        display.say(f"evenspan: skipped {file}: {reason}")
    page = write_report(material, output)
    figures = page.with_name(f"{page.stem}_figures")
    skipped = {str(file): reason for file, reason in material.skipped}
    values = {"page": str(page), "figures": str(figures), "skipped": skipped}
    display.show(f"{page}, with figures in {figures}", values)
