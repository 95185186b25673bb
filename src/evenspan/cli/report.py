"""`evenspan report`: audits, evaluations and sweeps on one page."""

from pathlib import Path
from typing import Annotated

from evenspan.cli.output import Display
from evenspan.cli.parsing import any_path, argument, given, option
from evenspan.errors import require_extra

_SOURCES = (
    "Output of `evenspan audit`, `evaluate`, `sweep`, `tune` and `advise`: files, or folders, searched recursively."
)


def report(
    *,
    sources: Annotated[list[str], argument(_SOURCES, "DIR|FILE", given)],
    output: Annotated[Path, option("Output file.", "FILE", any_path, "--output", "-o")] = Path("report.html"),
    display: Display,
) -> None:
    """Turn audits, evaluations, sweeps, tuning and advice into a single HTML report.

    The page has a summary, figures, tables, settings and versions. It needs no network and runs no scripts. Every figure is
    also written as SVG and PNG, with its data as CSV, to a folder beside the page.
    """
    require_extra("report", "A report", "matplotlib")
    from evenspan.report import read_sources, write_report
    from evenspan.report.write import check_output

    check_output(output)
    material = read_sources(sources)
    for file, reason in material.skipped:
        display.say(f"evenspan: skipped {file}: {reason}")
    page = write_report(material, output)
    figures = page.with_name(f"{page.stem}_figures")
    skipped = {str(file): reason for file, reason in material.skipped}
    values = {"page": str(page), "figures": str(figures), "skipped": skipped}
    display.show(f"{page}, with figures in {figures}", values)
