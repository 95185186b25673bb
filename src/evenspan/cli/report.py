"""`evenspan report`: audits, evaluations and sweeps on one page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "report",
        help="audits, evaluations and sweeps on one page for people",
        description="Write one self-contained HTML page: a summary in plain words, figures, tables, settings and versions. "
        "It needs no network and runs no scripts. Every figure is also written as SVG and PNG, with its data as CSV, to a "
        "folder beside the page.",
    )
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="DIR|FILE",
        help="what `evenspan audit`, `evaluate` and `sweep` wrote: files, or folders, which are searched with all below",
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), metavar="FILE", help="(default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the report, and say what was left out of it."""
    from evenspan.report import check_output, read_sources, write_report

    check_output(options.output)
    material = read_sources(options.sources)
    for path, reason in material.skipped:
        print(f"evenspan: skipped {path}: {reason}", file=sys.stderr)
    target = write_report(material, options.output)
    print(f"{target}, with figures in {target.with_name(target.stem + '_figures')}")
    return 0
