"""`evenspan evaluate`: what calibration does to each position, on a model and a benchmark."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from evenspan.calibration import Calibration
from evenspan.cli.baselines import Baselines
from evenspan.cli.loading import load_model
from evenspan.cli.options import Calibrations, Data, Encoding, OutputFolder
from evenspan.cli.output import Display, made
from evenspan.cli.parsing import BadOptionError, choice, number

_SORT = "Sort methods by a column: vectors, bytes, HM, PSI, nDCG@10 or Recall@10 (default: as given)."
_TITLE = "Put each document's title before its text (folders in BEIR layout)."


def evaluate(
    *,
    data: Data,
    calibration: Calibrations = None,
    baselines: Baselines,
    sort: Annotated[str | None, choice(_SORT, "vectors|bytes|HM|PSI|nDCG@10|Recall@10", metavar="COLUMN")] = None,
    title: Annotated[bool, typer.Option("--title", help=_TITLE)] = False,
    cut: Annotated[list[int] | None, number("Another cutoff for nDCG and recall, besides 10. May be repeated.")] = None,
    output: OutputFolder = None,
    encoding: Encoding,
    display: Display,
) -> None:
    """Measure what calibration does at each position.

    Shows nDCG and recall by position on a benchmark: uncalibrated first, then under each calibration and baseline, with the
    paired significance of each difference. Without --calibration and --baseline it uses the calibration saved with the model,
    or else the default. For several languages of posir (--option language=all) it shows each one and PosIR's macro-average.
    """
    data.require("Evaluation", *baselines.modules)
    options = {"cuts": (10, *(cut or ())), "progress": not display.quiet, **encoding.arguments()}
    from evenspan.evaluation import macro_average, methods
    from evenspan.models.calibrating import calibration_of

    baselines.check()  # a wrong name is refused before anything is loaded
    benchmarks = [part.load_benchmark(encoding.seed, **({"title": True} if title else {})) for part in data.languages()]
    if sort in ("HM", "PSI") and not benchmarks[0].groups:
        raise BadOptionError(
            f"--sort {sort}: {benchmarks[0].name} has no positions. Sort by nDCG@10, vectors or bytes."
        )
    model = load_model(data.model, encoding.device)
    settings = calibration or ([] if baselines.baseline else [calibration_of(model) or Calibration()])
    chosen = [methods.Plain(), *map(methods.Calibrated, settings)]
    chosen += baselines.methods(model, encoding.document_prompt, settings)
    for method in chosen:  # a method that cannot be used is refused before hours of work, not after
        method.check(model, encoding.document_prompt)
    several = len(benchmarks) > 1
    truncated = _truncations(model, benchmarks, encoding.document_prompt)
    folders = [output / benchmark.name if output and several else output for benchmark in benchmarks]
    results = [
        list(_results(model, benchmark, chosen, folder, display, options))
        for benchmark, folder in zip(benchmarks, folders, strict=True)
    ]
    tables = [_table(of_benchmark, folder, sort) for of_benchmark, folder in zip(results, folders, strict=True)]
    if several:
        results.append([macro_average(of_method) for of_method in zip(*results, strict=True)])
        tables.append(_table(results[-1], output, sort))
    values = {
        "results": [result.to_dict(per_query=False) for of_benchmark in results for result in of_benchmark],
        "comparison": json.loads(tables[-1].to_json()),
    }
    values |= {"comparisons": [json.loads(table.to_json()) for table in tables[:-1]]} if several else {}
    markdown = [f"{table.benchmark}\n\n{table.to_markdown()}" if several else table.to_markdown() for table in tables]
    values |= {"truncation": {name: asdict(of_texts) for name, of_texts in truncated.items()}}
    first = [f"{name + ': ' if several else ''}{of_texts}" for name, of_texts in truncated.items() if of_texts.cut]
    display.show("\n\n".join([*first, *map(str, tables)]), values, "\n\n".join([*first, *markdown]))


def _truncations(model: Any, benchmarks: list[Any], prompt: str | None) -> dict[str, Any]:
    """What is never read of the documents of each benchmark."""
    from evenspan.encoding import truncation
    from evenspan.evaluation.benchmarks.texts import documents_of

    return {benchmark.name: truncation(model, documents_of(benchmark), prompt) for benchmark in benchmarks}


def _results(
    model: Any, benchmark: Any, chosen: list[Any], folder: Path | None, display: Display, options: dict[str, Any]
) -> Iterator[Any]:
    """Of each method on a benchmark, written as soon as it is there."""
    from evenspan.evaluation import evaluate as run
    from evenspan.evaluation.scores import file_name

    for method in chosen:
        display.say(f"{benchmark.name}: {method.name}")
        result = run(model, benchmark, method=method, **options)
        if folder is not None:
            with made(folder):
                name = file_name(method.name)
                result.write(folder / f"{name}.json")
                result.to_frame().to_csv(folder / f"{name}.csv", index=False)
        yield result


def _table(results: list[Any], folder: Path | None, sort: str | None) -> Any:
    """The results side by side, sorted and written."""
    from evenspan.evaluation import compare

    comparison = compare(results)
    comparison = comparison if sort is None else comparison.sorted_by(sort)
    if folder is not None:
        tables = {"md": comparison.to_markdown(), "tex": comparison.to_latex(), "json": comparison.to_json()}
        for ending, text in tables.items():
            (folder / f"comparison.{ending}").write_text(text + "\n", encoding="utf-8")
    return comparison
