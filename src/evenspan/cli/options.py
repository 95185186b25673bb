"""Options that several commands share."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from evenspan.calibration import Calibration


def calibration(text: str) -> Calibration:
    """Read a calibration from the command line, with its own words in the error."""
    try:
        return Calibration.parse(text)
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


MODEL_HELP = "a model folder, a name on the Hugging Face hub, or miniature:cls or miniature:last"
CALIBRATION_HELP = (
    "a calibration such as 'soft' or 'hard,strength=1.0,layers=last,basket_size=64'; what is left out takes its "
    f"default (default: '{Calibration()}')"
)


def quiet_transformers() -> None:
    """Silence load reports and weight-loading bars, which would drown a command's own output."""
    from transformers.utils import logging

    silence: Any = logging
    silence.set_verbosity_error()
    silence.disable_progress_bar()


def add_encoding_options(parser: argparse.ArgumentParser) -> None:
    """Options of commands that encode documents and queries."""
    parser.add_argument("--query-prompt", metavar="TEXT", help="in front of queries (default: the model's own)")
    parser.add_argument("--document-prompt", metavar="TEXT", help="in front of documents (default: the model's own)")
    parser.add_argument("--batch-size", type=int, default=32, help="(default: %(default)s)")
    parser.add_argument("--device", help="cpu, cuda, … (default: the best there is)")
    parser.add_argument("--cache", type=Path, metavar="DIR", help=f"folder for vectors (default: {default_cache()})")
    parser.add_argument("--no-cache", action="store_true", help="keep vectors in memory only")
    parser.add_argument("--seed", type=int, default=42, help="of the bootstrap (default: %(default)s)")
    parser.add_argument(
        "--resamples", type=int, default=1000, help="of the bootstrap, 0 for none (default: %(default)s)"
    )


def encoding_options(options: argparse.Namespace) -> dict[str, Any]:
    """What `add_encoding_options` read, as arguments of `evaluate`."""
    names = ("query_prompt", "document_prompt", "batch_size", "seed", "resamples")
    return {name: getattr(options, name) for name in names}


def benchmark_options(pairs: list[str]) -> dict[str, Any]:
    """`NAME=VALUE` options of a benchmark: true, false and whole numbers are read as such."""
    chosen: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--option {pair!r} needs the form NAME=VALUE.")
        chosen[name] = {"true": True, "false": False}.get(value.lower(), int(value) if value.isdecimal() else value)
    return chosen


def default_cache() -> Path:
    """Where vectors are kept unless told otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "evenspan" / "vectors"


def write_run(folder: Path) -> None:
    """Write down the command and the versions that made the files in a folder."""
    from importlib import metadata

    packages = ("evenspan", "torch", "transformers", "sentence-transformers")
    run = {"command": ["evenspan", *sys.argv[1:]], "versions": {name: metadata.version(name) for name in packages}}
    (folder / "run.json").write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")
