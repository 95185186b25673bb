"""`evenspan sweep`: many settings on one benchmark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from evenspan.cli import extras
from evenspan.cli.display import Display
from evenspan.cli.files import check_folder, made, write_run
from evenspan.cli.loading import load_model
from evenspan.cli.options import Data, Encoding, Model, OutputFolder
from evenspan.cli.parsing import location

_GRID = (
    "'paper' (24 settings), 'ablation' (soft at 20 strengths, the last layer and the last half: 40), or a file with one "
    "calibration a line."
)
_DETACHED = "Approximate: one pass for all settings of any model; the winner is evaluated exactly."


@dataclass(frozen=True)
class Settings:
    """What `sweep` and `tune` try, and where they write it."""

    grid: Annotated[str, location("--grid", "NAME|FILE", _GRID)] = "paper"
    detached: Annotated[bool, typer.Option("--detached", help=_DETACHED)] = False
    output: OutputFolder = None


def sweep(*, model: Model, data: Data, settings: Settings, encoding: Encoding, display: Display) -> None:
    """Evaluate many settings at a fraction of the cost.

    Evaluates a model plain and under every setting of a grid, with the work that the settings share done once. With --output
    it writes results, tables and figures (PNG and SVG). Interrupted, it goes on from its cache.
    """
    loaded, benchmark, arguments = prepare("A sweep", model, data, display, settings, encoding)
    from evenspan.sweeps import sweep as run

    def tell(result: Any) -> None:
        mean = "" if result.harmonic_mean is None else f", HM {100 * result.harmonic_mean:.1f}, PSI {result.psi:.3f}"
        display.say(f"  {result.method}: nDCG@10 {100 * result.ndcg:.1f}{mean}")

    swept = run(loaded, benchmark, each=tell, **arguments)
    values = {
        "best": None if swept.best is None else str(swept.best),
        "detached": swept.detached,
        "results": [result.to_dict(per_query=False) for result in (swept.plain, *swept.results.values())],
        "comparison": json.loads(swept.comparison.to_json()),
        "failures": {str(setting): reason for setting, reason in swept.failures.items()},
    }
    notes = str(swept).removeprefix(str(swept.comparison))
    display.show(swept, values, f"{swept.comparison.to_markdown()}\n{notes}")
    if settings.output is not None:
        with made(settings.output):
            swept.write(settings.output)
            write_run(settings.output)


def prepare(
    purpose: str, model: str, data: Data, display: Display, settings: Settings, encoding: Encoding
) -> tuple[Any, Any, dict[str, Any]]:
    """The model, the benchmark and the arguments of `sweep`; what could not be written is refused first."""
    extras.for_model(model)
    extras.for_evaluation(purpose, data.benchmark, tables=settings.output is not None)
    if settings.output is not None:
        extras.for_figures("--output")
    check_folder("--output", settings.output)
    arguments = encoding.arguments()
    from evenspan.sweeps import read_grid

    grid = read_grid(settings.grid)
    benchmark = data.load()
    loaded = load_model(model, encoding.device)
    display.say(f"{benchmark.name}: {len(grid)} settings")
    more = {"calibrations": grid, "detached": settings.detached, "progress": display.progress}
    return loaded, benchmark, {**more, **arguments}
