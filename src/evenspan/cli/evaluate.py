"""`evenspan evaluate`: what calibration does to each position, on a model and a benchmark."""

import json
from typing import Annotated, Any

import typer

from evenspan.calibration import Calibration
from evenspan.cli.options import Calibrations, Data, Encoding, OutputFolder, SegmentEmbedder
from evenspan.cli.output import Display, made
from evenspan.cli.parsing import number, option, share

_BASELINE = "segment-average, window-average, late-chunking, chunks-max or bm25. May be repeated."
_MODULES = {"bm25": "bm25s", "segment-average": "chonkie"}  # what a baseline needs
_TITLE = "Put each document's title in front of its text, in a folder in BEIR layout."


def evaluate(
    *,
    data: Data,
    calibration: Calibrations = None,
    baseline: Annotated[list[str] | None, option(_BASELINE)] = None,
    window: Annotated[int | None, number("Tokens in a window of the baselines (default: 256, or what fits).")] = None,
    segment_embedder: SegmentEmbedder = None,
    segment_threshold: Annotated[float, share("For segment-average: threshold of Chonkie's chunker.")] = 0.8,
    title: Annotated[bool, typer.Option("--title", help=_TITLE)] = False,
    cut: Annotated[list[int] | None, number("Another cutoff for nDCG and recall, besides 10. May be repeated.")] = None,
    output: OutputFolder = None,
    encoding: Encoding,
    display: Display,
) -> None:
    """Measure what calibration does at each position.

    Shows nDCG and recall by position on a benchmark: uncalibrated first, then under each calibration and baseline, with the
    paired significance of each difference. Without --calibration and --baseline it takes the calibration that the model was
    saved with, or else the default one.
    """
    names = [name for name in baseline or () if name != "none"]
    data.require("Evaluation", *(_MODULES[name] for name in names if name in _MODULES))
    options = {"cuts": (10, *(cut or ())), "progress": not display.quiet, **encoding.arguments()}
    from evenspan.evaluation import compare, methods
    from evenspan.evaluation import evaluate as run
    from evenspan.evaluation.scores import file_name
    from evenspan.models.calibrating import calibration_of
    from evenspan.models.reading import room_for_text

    for name in names:  # a wrong name is refused before anything is loaded
        methods.baseline(name)
    model, benchmark = data.load(encoding.device, **({"title": True} if title else {}))
    settings = calibration or ([] if baseline else [calibration_of(model) or Calibration()])
    details: dict[str, Any] = {"embedder": segment_embedder} if segment_embedder else {}
    details["window"] = window or min(256, room_for_text(model, encoding.document_prompt))
    baselines = [methods.baseline(name, threshold=segment_threshold, **details) for name in names]
    chosen = [methods.Plain(), *map(methods.Calibrated, settings), *baselines]
    for method in chosen:  # a method that cannot be used is refused before hours of work, not after
        method.check(model, encoding.document_prompt)
    results = []
    for method in chosen:
        display.say(f"{benchmark.name}: {method.name}")
        results.append(run(model, benchmark, method=method, **options))
        if output is not None:
            with made(output):
                name = file_name(method.name)
                results[-1].write(output / f"{name}.json")
                results[-1].to_frame().to_csv(output / f"{name}.csv", index=False)
    comparison = compare(results)
    if output is not None:
        tables = {"md": comparison.to_markdown(), "tex": comparison.to_latex(), "json": comparison.to_json()}
        for ending, text in tables.items():
            (output / f"comparison.{ending}").write_text(text + "\n", encoding="utf-8")
    values = {
        "results": [result.to_dict(per_query=False) for result in results],
        "comparison": json.loads(comparison.to_json()),
    }
    display.show(comparison, values, comparison.to_markdown())
