"""`evenspan sweep`: many settings on one benchmark."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from evenspan.cli.loading import load_model
from evenspan.cli.options import Data, Encoding, OutputFolder
from evenspan.cli.output import Display, made
from evenspan.cli.parsing import given, option
from evenspan.errors import require_extra

_GRID = (
    "'paper' (24 settings), 'ablation' (40 settings of soft), 'even' (16, for chunks and documents of mixed lengths), or a "
    "file with one calibration per line."
)
_DETACHED = "Approximate, in one pass for all settings. The best one is then evaluated exactly."


@dataclass(frozen=True)
class Settings:
    """What `sweep` and `tune` try, and where they write it."""

    grid: Annotated[str, option(_GRID, "NAME|FILE", given)] = "paper"
    detached: Annotated[bool, typer.Option("--detached", help=_DETACHED)] = False
    output: OutputFolder = None

    def read_grid(self) -> list[Any]:
        """The settings to try."""
        from evenspan.sweeps import read_grid

        return read_grid(self.grid)

    def prepare(self, data: Data, encoding: Encoding, display: Display) -> dict[str, Any]:
        """The arguments of `sweep`."""
        arguments = encoding.arguments()
        grid = self.read_grid()
        benchmark = data.load_benchmark(encoding.seed)
        model = load_model(data.model, encoding.device)
        display.say(f"{benchmark.name}: {len(grid)} settings")
        arguments |= {"calibrations": grid, "detached": self.detached, "progress": not display.quiet}
        return {"model": model, "benchmark": benchmark, **arguments}


def sweep(*, data: Data, settings: Settings, encoding: Encoding, display: Display) -> None:
    """Evaluate many settings at a fraction of the cost.

    Evaluates the plain model and every setting of a grid; work that settings share is done once. --output writes results,
    tables and figures (PNG and SVG). If interrupted, the same command resumes from its cache.
    """
    data.require("A sweep")
    if settings.output is not None:  # what could not be written is refused first
        require_extra("report", "--output", "matplotlib")
    arguments = settings.prepare(data, encoding, display)
    from evenspan.sweeps import sweep as run

    def tell(result: Any) -> None:
        mean = "" if result.harmonic_mean is None else f", HM {100 * result.harmonic_mean:.1f}, PSI {result.psi:.3f}"
        display.say(f"  {result.method}: nDCG@10 {100 * result.ndcg:.1f}{mean}")

    swept = run(each=tell, **arguments)
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
