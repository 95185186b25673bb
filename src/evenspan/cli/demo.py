"""`evenspan demo`: the bias and its cure, on this machine, without a download."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evenspan.calibration import Calibration
from evenspan.cli.options import CALIBRATION_HELP, calibration, quiet_transformers


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="see the bias and its cure in two minutes",
        description="Load a miniature retriever, ask it a generated benchmark before and after calibration, and show nDCG@10 "
        "by position, with one question whose answer stands at the end. Needs the extra: pip install 'evenspan[demo]'.",
    )
    parser.add_argument("--pooling", choices=["cls", "last"], default="cls", help="which miniature (default: cls)")
    parser.add_argument("--calibration", type=calibration, default=Calibration(), help=CALIBRATION_HELP)
    parser.add_argument("--documents", type=int, default=36, help="(default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=600, help="in a document, about (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the documents (default: %(default)s)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw nDCG@10 by position, too")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the demo and print it."""
    if options.plot is not None:  # said now, not after two minutes
        if find_spec("matplotlib") is None:
            raise ImportError("--plot needs matplotlib: pip install 'evenspan[demo]'")
        if not options.plot.parent.is_dir():
            raise FileNotFoundError(f"--plot: there is no folder {options.plot.parent}")
    if find_spec("ir_measures") is None:
        raise ImportError("The demo needs the extra: pip install 'evenspan[demo]'")
    from evenspan.demonstration import demonstrate

    quiet_transformers()
    found = demonstrate(
        options.pooling,
        options.calibration,
        documents=options.documents,
        tokens=options.tokens,
        seed=options.seed,
        report=lambda line: print(line, file=sys.stderr),
    )
    print(found)
    if options.plot is not None:
        found.plot(options.plot)
    return 0
