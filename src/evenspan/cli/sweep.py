"""`evenspan sweep` and `evenspan tune`: many settings on one benchmark, and the one to use, if any."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

from evenspan.cli.options import (
    MODEL_HELP,
    add_encoding_options,
    benchmark_options,
    default_cache,
    encoding_options,
    quiet_transformers,
    write_run,
)

_GRID_HELP = (
    "'paper' (24 settings), 'ablation' (soft at 20 strengths, the last layer and the last half: 40), or a file with one "
    "calibration a line (default: paper)"
)


def add_parser(commands: Any) -> None:
    """Declare both commands."""
    sweep: argparse.ArgumentParser = commands.add_parser(
        "sweep",
        help="evaluate many settings at a fraction of the cost",
        description="Evaluate a model plain and under every setting of a grid, with the work that the settings share done "
        "once. With --output it writes results, tables and figures (PNG and SVG). Interrupted, it goes on from its cache.",
    )
    _add_common(sweep)
    sweep.set_defaults(run=run_sweep)
    tune: argparse.ArgumentParser = commands.add_parser(
        "tune",
        help="find the setting for a model, or that it is better left off",
        description="Choose a setting by HM on a part of the queries and confirm it on the others. The answer is a "
        "calibration, or “leave it off” when nothing beats the plain model beyond noise.",
    )
    _add_common(tune)
    tune.add_argument(
        "--development",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="of the documents whose queries choose (default: 0.5)",
    )
    tune.add_argument(
        "--save", type=Path, metavar="DIR", help="save the model here with the calibration, if there is one"
    )
    tune.set_defaults(run=run_tune)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "--benchmark",
        required=True,
        metavar="NAME|DIR",
        help="as in `evenspan evaluate`: a name, a folder in BEIR layout, a file in SQuAD format",
    )
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the benchmark"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="a quick look: N documents and the queries they answer")
    parser.add_argument("--grid", default="paper", metavar="NAME|FILE", help=_GRID_HELP)
    parser.add_argument(
        "--detached",
        action="store_true",
        help="approximate: one pass for all settings of any model; the winner is evaluated exactly",
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="write results, tables and figures here")
    add_encoding_options(parser)


def _prepare(options: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    from evenspan.evaluation import load_benchmark
    from evenspan.models.loading import load
    from evenspan.sweeps import read_grid

    quiet_transformers()
    if options.output is not None:  # what could not be written is refused before hours of work, not after
        options.output.mkdir(parents=True, exist_ok=True)
        if importlib.util.find_spec("matplotlib") is None:
            raise ImportError("--output draws figures, which need matplotlib: pip install 'evenspan[report]'.")
    grid = read_grid(options.grid)  # a wrong name is refused before anything is loaded
    benchmark = load_benchmark(options.benchmark, limit=options.limit, **benchmark_options(options.option))
    model = load(options.model, **({"device": options.device} if options.device else {}))
    cache = None if options.no_cache else (options.cache or default_cache())
    print(f"{benchmark.name}: {len(grid)} settings", file=sys.stderr)
    rest = {"calibrations": grid, "detached": options.detached, "cache": cache, **encoding_options(options)}
    return model, benchmark, rest


def run_sweep(options: argparse.Namespace) -> int:
    """Evaluate every setting and print them side by side."""
    from evenspan.sweeps import sweep

    model, benchmark, rest = _prepare(options)

    def tell(result: Any) -> None:
        mean = "" if result.harmonic_mean is None else f", HM {100 * result.harmonic_mean:.1f}, PSI {result.psi:.3f}"
        print(f"  {result.method}: nDCG@10 {100 * result.ndcg:.1f}{mean}", file=sys.stderr, flush=True)

    found = sweep(model, benchmark, each=tell, **rest)
    print(found, flush=True)
    if options.output is not None:
        found.write(options.output)
        write_run(options.output)
    return 0


def run_tune(options: argparse.Namespace) -> int:
    """Choose a setting, or none, and say why."""
    from evenspan.models.calibrating import calibrate
    from evenspan.sweeps import tune

    model, benchmark, rest = _prepare(options)
    found = tune(model, benchmark, development=options.development, **rest)
    print(found, flush=True)
    if options.output is not None:
        found.sweep.write(options.output)
        (options.output / "tuning.txt").write_text(f"{found}\n", encoding="utf-8")
        write_run(options.output)
    if options.save is not None:
        if found.calibration is None:
            print("Nothing was saved: the plain model is the one to use.", file=sys.stderr)
        else:
            calibrate(model, found.calibration).save_pretrained(str(options.save))
            print(f"Saved to {options.save}; load it with evenspan.load({str(options.save)!r}).", file=sys.stderr)
    return 0
