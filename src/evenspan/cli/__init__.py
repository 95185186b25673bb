"""The `evenspan` command."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence

from evenspan import __version__
from evenspan.cli import audit, demo, evaluate, index, inspect, report, reproduce, search, sweep


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="evenspan",
        description="Position-fair dense retrieval: attention calibration for the embedding model you already use.",
    )
    parser.add_argument("--version", action="version", version=f"evenspan {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (demo, inspect, audit, index, search, evaluate, sweep, report, reproduce):
        command.add_parser(commands)
    options = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):  # a narrow encoding must not cost the result of long work
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        status: int = options.run(options)
    except KeyboardInterrupt:
        print("evenspan: interrupted", file=sys.stderr)
        return 130
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        print(f"evenspan: {error}", file=sys.stderr)
        return 2
    return status
