"""`evenspan evaluate`: what calibration does to each position, on a model and a benchmark."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from evenspan.cli.options import (
    add_encoding_options,
    benchmark_options,
    calibration,
    default_cache,
    encoding_options,
    quiet_transformers,
    write_run,
)


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "evaluate",
        help="nDCG and recall by position, with and without calibration",
        description="Evaluate a model on a benchmark: uncalibrated first, then each calibration and baseline, with the "
        "paired significance of each difference. Without --calibration and --baseline it is the model's "
        "own calibration, if it was saved with one, or else the default one.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a model folder, a name on the Hugging Face hub, or miniature:cls or miniature:last",
    )
    parser.add_argument(
        "--benchmark",
        required=True,
        metavar="NAME|DIR",
        help="fineweb-posq, squad-posq, posir, nanobeir, generated, a folder in BEIR layout, or a file in SQuAD format",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the benchmark, e.g. tiny=true, language=deu-Latn, path=DIR; may be repeated",
    )
    parser.add_argument(
        "--calibration",
        type=calibration,
        action="append",
        default=[],
        help="a calibration such as 'soft'; may be repeated",
    )
    parser.add_argument(
        "--baseline",
        action="append",
        default=[],
        metavar="NAME",
        help="segment-average, window-average, late-chunking, chunks-max or bm25; may be repeated",
    )
    parser.add_argument(
        "--window", type=int, help="tokens in a window of the baselines (default: 256, or what fits the model)"
    )
    parser.add_argument(
        "--segment-embedder",
        metavar="MODEL",
        help="what segment-average compares sentences with: a model, or 'self' (default: Chonkie's own)",
    )
    parser.add_argument("--segment-threshold", type=float, default=0.8, help="of Chonkie's chunker (default: 0.8)")
    parser.add_argument("--limit", type=int, metavar="N", help="a quick look: N documents and the queries they answer")
    parser.add_argument("--title", action="store_true", help="put a document's title in front of its text (folders)")
    parser.add_argument("--cut", type=int, action="append", default=[], help="another cut for nDCG and recall")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write results and per-query values here")
    add_encoding_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Evaluate every method and print them side by side."""
    from evenspan.calibration import Calibration
    from evenspan.evaluation import compare, evaluate, load_benchmark
    from evenspan.evaluation.methods import Calibrated, Method, Plain, baseline
    from evenspan.evaluation.scores import file_name
    from evenspan.models.calibrating import calibration_of
    from evenspan.models.loading import load
    from evenspan.models.reading import room_for_text

    quiet_transformers()
    model = load(options.model, **({"device": options.device} if options.device else {}))
    window = options.window or min(256, room_for_text(model, options.document_prompt))
    details: dict[str, Any] = {"window": window, "threshold": options.segment_threshold}
    if options.segment_embedder:
        details["embedder"] = options.segment_embedder
    methods: list[Method] = [Plain()]
    default = calibration_of(model) or Calibration()
    settings = options.calibration or ([] if options.baseline else [default])
    methods += [Calibrated(setting) for setting in settings]
    methods += [baseline(name, **details) for name in options.baseline if name != "none"]
    chosen = benchmark_options(options.option)
    if options.title:
        chosen["title"] = True
    benchmark = load_benchmark(options.benchmark, limit=options.limit, **chosen)
    for method in methods:  # a method that cannot be used is refused before hours of work, not after
        method.check(model, options.document_prompt)
    cache = None if options.no_cache else (options.cache or default_cache())
    results = []
    for method in methods:
        print(f"{benchmark.name}: {method.name}", file=sys.stderr)
        results.append(
            evaluate(model, benchmark, method=method, cuts=(10, *options.cut), cache=cache, **encoding_options(options))
        )
        if options.output is not None:
            options.output.mkdir(parents=True, exist_ok=True)
            name = file_name(method.name)
            results[-1].write(options.output / f"{name}.json")
            results[-1].to_frame().to_csv(options.output / f"{name}.csv", index=False)
    comparison = compare(results)
    if options.output is not None:
        (options.output / "comparison.md").write_text(comparison.to_markdown() + "\n", encoding="utf-8")
        (options.output / "comparison.tex").write_text(comparison.to_latex() + "\n", encoding="utf-8")
        (options.output / "comparison.json").write_text(comparison.to_json() + "\n", encoding="utf-8")
        write_run(options.output)
    if options.json:
        results_json = [result.to_dict(per_query=False) for result in results]
        print(json.dumps({"results": results_json, "comparison": json.loads(comparison.to_json())}, indent=2))
    else:
        print(comparison)
    return 0
