"""The `evenspan` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from evenspan import __version__
from evenspan.cli import evaluate, inspect, reproduce


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="evenspan",
        description="Position-fair dense retrieval: attention calibration for the embedding model you already use.",
    )
    parser.add_argument("--version", action="version", version=f"evenspan {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (inspect, evaluate, reproduce):
        command.add_parser(commands)
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
    except KeyboardInterrupt:
        print("evenspan: interrupted", file=sys.stderr)
        return 130
    except (ImportError, OSError, TypeError, ValueError) as error:
        print(f"evenspan: {error}", file=sys.stderr)
        return 2
    return status
