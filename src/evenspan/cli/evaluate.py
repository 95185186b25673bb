"""`evenspan evaluate`: what calibration does to each position, on a model and a benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenspan.calibration import Calibration
from evenspan.cli import extras
from evenspan.cli.display import Display
from evenspan.cli.files import check_folder, made, write_run
from evenspan.cli.loading import load_model
from evenspan.cli.options import Calibrations, Data, Encoding, Model, OutputFolder, SegmentEmbedder
from evenspan.cli.parsing import number, share, text

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from evenspan.evaluation.methods import Method

_BASELINE = "segment-average, window-average, late-chunking, chunks-max or bm25; may be repeated."
_WINDOW = "Tokens in a window of the baselines (default: 256, or what fits the model)."

_Baselines = Annotated[list[str] | None, text("--baseline", "NAME", _BASELINE)]
_Window = Annotated[int | None, number("--window", _WINDOW)]
_SegmentThreshold = Annotated[float, share("--segment-threshold", "Of Chonkie's chunker.")]
_Title = Annotated[bool, typer.Option("--title", help="Put a document's title in front of its text (folders).")]
_Cuts = Annotated[list[int] | None, number("--cut", "Another cut for nDCG and recall; may be repeated.")]


def evaluate(
    *,
    model: Model,
    data: Data,
    calibration: Calibrations = None,
    baseline: _Baselines = None,
    window: _Window = None,
    segment_embedder: SegmentEmbedder = None,
    segment_threshold: _SegmentThreshold = 0.8,
    title: _Title = False,
    cut: _Cuts = None,
    output: OutputFolder = None,
    encoding: Encoding,
    display: Display,
) -> None:
    """Show nDCG and recall by position, with and without calibration.

    Evaluates a model on a benchmark: uncalibrated first, then each calibration and baseline, with the paired significance of
    each difference. Without --calibration and --baseline it is the model's own calibration, if it was saved with one, or else
    the default one.
    """
    names = list(baseline or ())
    extras.for_model(model, segment_embedder)
    extras.for_evaluation("Evaluation", data.benchmark, methods=names, tables=output is not None)
    check_folder("--output", output)
    arguments = encoding.arguments()
    from evenspan.evaluation import compare
    from evenspan.evaluation import evaluate as run
    from evenspan.evaluation.methods import baseline as named

    for name in names:  # a wrong name is refused before anything is loaded
        named(name)
    benchmark = data.load(**({"title": True} if title else {}))
    loaded = load_model(model, encoding.device)
    details: dict[str, Any] = {"window": window, "threshold": segment_threshold, "embedder": segment_embedder}
    methods = _methods(loaded, calibration, names, details, encoding.document_prompt)
    for method in methods:  # a method that cannot be used is refused before hours of work, not after
        method.check(loaded, encoding.document_prompt)
    results = []
    for method in methods:
        display.say(f"{benchmark.name}: {method.name}")
        options = {"cuts": (10, *(cut or ())), "progress": display.progress, **arguments}
        results.append(run(loaded, benchmark, method=method, **options))
        if output is not None:
            with made(output):
                _write(results[-1], output)
    comparison = compare(results)
    if output is not None:
        _write_comparison(comparison, output)
        write_run(output)
    values = {
        "results": [result.to_dict(per_query=False) for result in results],
        "comparison": json.loads(comparison.to_json()),
    }
    display.show(comparison, values, comparison.to_markdown())


def _methods(
    model: SentenceTransformer,
    calibrations: list[Calibration] | None,
    baselines: list[str],
    details: dict[str, Any],
    prompt: str | None,
) -> list[Method]:
    """The plain model, the calibrations and the baselines, with the settings that were given."""
    from evenspan.evaluation.methods import Calibrated, Plain, baseline
    from evenspan.models.calibrating import calibration_of
    from evenspan.models.reading import room_for_text

    given = {name: value for name, value in details.items() if value is not None}
    given.setdefault("window", min(256, room_for_text(model, prompt)))
    settings = calibrations or ([] if baselines else [calibration_of(model) or Calibration()])
    return [
        Plain(),
        *(Calibrated(setting) for setting in settings),
        *(baseline(name, **given) for name in baselines if name != "none"),
    ]


def _write(result: Any, folder: Path) -> None:
    from evenspan.evaluation.scores import file_name

    name = file_name(result.method)
    result.write(folder / f"{name}.json")
    result.to_frame().to_csv(folder / f"{name}.csv", index=False)


def _write_comparison(comparison: Any, folder: Path) -> None:
    tables = {"md": comparison.to_markdown(), "tex": comparison.to_latex(), "json": comparison.to_json()}
    for ending, content in tables.items():
        (folder / f"comparison.{ending}").write_text(content + "\n", encoding="utf-8")
