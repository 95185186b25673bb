"""The paper's baskets and even ones: chunks of three lengths, scored by their maximum, and whole documents.

    python benchmarks/partition.py encode miniature:cls DATA vectors/ [--chunks 192 384 512] [--device cuda]
    python benchmarks/partition.py score DATA vectors/ --output benchmarks/results/partition.json

DATA is a folder in BEIR layout whose queries have positions. `encode` writes the vectors of a model under every setting, one
file for each length of chunks, and leaves out files that are there: it can be interrupted. `score` needs no model, and can
run on another machine: nDCG@10 by position, HM with its 95 % interval, and PSI, as JSON and as a table.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenspan import Calibration
from evenspan.evaluation import load_benchmark
from evenspan.evaluation.benchmark import POSITIONS, Benchmark
from evenspan.evaluation.comparing import compare
from evenspan.evaluation.measures import measure
from evenspan.evaluation.scores import EvaluationResult, QueryScore
from evenspan.evaluation.scoring import Resampling, summarise
from evenspan.evaluation.search import DocumentVectors, search
from evenspan.evaluation.units import document_units

STRENGTHS = (0.5, 0.75, 1.0)
WHOLE = 0  # a length of chunks: the whole document is one


def settings(basket_size: int) -> list[Calibration]:
    """The plain model, and both partitions at every strength."""
    each = product(STRENGTHS, ("paper", "even"))
    calibrated = [Calibration(strength=s, basket_size=basket_size, partition=p) for s, p in each]  # type: ignore[arg-type]
    return [Calibration(strength=0.0, basket_size=basket_size), *calibrated]


def encode(options: argparse.Namespace) -> None:
    """Vectors of a model under every setting."""
    import evenspan
    from evenspan.encoding import Encoder
    from evenspan.models.reading import windows
    from evenspan.sweeps import encode as encode_settings

    more = {} if options.model.startswith("miniature:") else {"model_kwargs": {"dtype": "float32"}}
    model = evenspan.load(options.model, device=options.device, **more)
    if options.tokens:
        model.max_seq_length = options.tokens
    (collection,) = load_benchmark(options.data).collections
    options.folder.mkdir(parents=True, exist_ok=True)
    name = options.name or options.model.replace(":", "-")
    asked = options.folder / f"{name}-queries.npz"
    if not asked.exists():
        questions = [query.text for query in collection.queries]
        _save(asked, {"queries": Encoder(model, role="query").encode(questions)})
    for size in options.chunks:
        path = options.folder / f"{name}-{size}.npz"
        if path.exists():
            continue
        pieces = [[text] if size == WHOLE else windows(model, text, size) for text in collection.corpus.values()]
        arrays = {"counts": np.array([len(of_text) for of_text in pieces])}
        together = [piece for of_text in pieces for piece in of_text]
        swept = encode_settings(model, together, settings(options.basket_size), normalize_embeddings=True)
        _save(path, arrays | {str(setting): vectors for setting, vectors in swept.items()})
        print(f"{name}, chunks of {size or 'whole documents'}", flush=True)


def _save(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Written whole or not at all; vectors in float16, of which a ranking notices nothing."""
    halved = {name: array.astype(np.float16) if array.dtype == np.float32 else array for name, array in arrays.items()}
    temporary = path.with_suffix(".tmp.npz")
    np.savez(temporary, **halved)
    temporary.replace(path)


def scored(
    benchmark: Benchmark,
    queries: NDArray[np.float32],
    vectors: NDArray[np.float32],
    counts: NDArray[np.int64],
    method: str,
) -> EvaluationResult:
    """What `evaluate` gives, from vectors that are there already."""
    (collection,) = benchmark.collections
    documents = DocumentVectors(list(collection.corpus), vectors, counts)
    ranked = search(queries, documents, 10)
    scores = measure(dict(zip((query.id for query in collection.queries), ranked, strict=True)), collection.relevance)
    units = document_units(benchmark)
    rows = [
        QueryScore(name, query.id, query.groups, query.position, query.length, scores[query.id], units[name, query.id])
        for name, query in product([collection.name], collection.queries)
    ]
    return EvaluationResult(
        benchmark=benchmark.name,
        method=method,
        vectors_per_document=len(vectors) / len(counts),
        setting={"resamples": 1000, "seed": 42, "data_sha256": benchmark.digest()},
        per_query=tuple(rows),
        **summarise(benchmark, rows, Resampling(1000, 42)),
    )


def score(options: argparse.Namespace) -> None:
    """Figures of all files of vectors, against the plain model on the same chunks."""
    benchmark = load_benchmark(options.data)
    rows: list[dict[str, Any]] = []
    if options.output.exists():
        rows = json.loads(options.output.read_text(encoding="utf-8"))
    done = {(row["benchmark"], row["model"], row["chunks"]) for row in rows}
    for path in sorted(options.folder.glob("*-[0-9]*.npz")):
        model, _, size = path.stem.rpartition("-")
        if (benchmark.name, model, int(size)) in done:
            continue
        queries = _unit(np.load(options.folder / f"{model}-queries.npz")["queries"])
        with np.load(path) as stored:
            counts, names = stored["counts"], [name for name in stored if name != "counts"]
            results = [scored(benchmark, queries, _unit(stored[name]), counts, name) for name in names]
            if options.averages and int(size) != WHOLE:
                averaged, ones = _averages(_unit(stored[names[0]]), counts), np.ones(len(counts), dtype=np.int64)
                results.append(scored(benchmark, queries, averaged, ones, f"window-average,window={size}"))
        for result, compared in zip(results, compare(results).rows, strict=True):
            rows.append(_row(benchmark, model, int(size), result, compared))
            print(json.dumps(rows[-1]), flush=True)
        _write(rows, options.output)
    _write(rows, options.output)


def _write(rows: list[dict[str, Any]], output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
    output.with_suffix(".md").write_text(table(rows) + averages(rows), encoding="utf-8")


def _unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    full = vectors.astype(np.float32)
    unit: NDArray[np.float32] = full / np.linalg.norm(full, axis=1, keepdims=True)
    return unit


def _averages(vectors: NDArray[np.float32], counts: NDArray[np.int64]) -> NDArray[np.float32]:
    return _unit(np.stack([part.mean(axis=0) for part in np.split(vectors, np.cumsum(counts)[:-1])]))


def _row(benchmark: Benchmark, model: str, size: int, result: EvaluationResult, compared: Any) -> dict[str, Any]:
    difference = compared.differences.get("HM")
    interval = None if difference is None or difference.interval is None else difference.interval
    calibration = None if result.method.startswith("window") else Calibration.parse(result.method)
    return {
        "benchmark": benchmark.name,
        "model": model,
        "chunks": size,
        "vectors": round(result.vectors_per_document, 2),
        "method": result.method,
        "strength": None if calibration is None else calibration.strength,
        "partition": None if calibration is None else calibration.partition,
        "by": [round(100 * result.groups[name].ndcg, 2) for name in POSITIONS],
        "ndcg": round(100 * result.ndcg, 2),
        "hm": round(100 * (result.harmonic_mean or 0.0), 2),
        "psi": round(result.psi or 0.0, 4),
        "hm_gain": None if difference is None else round(100 * difference.value, 2),
        "hm_gain_interval": None if interval is None else [round(100 * end, 2) for end in interval],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The figures as Markdown: for each model and length the change of HM, and PSI."""
    lines = [
        "# The paper's baskets and even ones",
        "",
        "Change of HM (the harmonic mean of nDCG@10 × 100 over beginning, middle and end) against the plain model on the same "
        "chunks, with its 95 % interval (paired bootstrap over documents), and PSI. Chunks are scored by their maximum. "
        "`python benchmarks/partition.py`",
        "",
        "| benchmark | model | chunks | plain HM, PSI | λ | the paper's | even |",
        "|---|---|---:|---|---:|---|---|",
    ]
    kinds = dict.fromkeys((row["benchmark"], row["model"], row["chunks"]) for row in rows)
    for benchmark, model, size in kinds:
        here = [row for row in rows if (row["benchmark"], row["model"], row["chunks"]) == (benchmark, model, size)]
        plain = here[0]
        for strength in STRENGTHS:
            cells = []
            for partition in ("paper", "even"):
                found = [row for row in here[1:] if (row["strength"], row["partition"]) == (strength, partition)]
                cells.append(_cell(found[0]) if found else "–")
            name = size or "whole"
            before = f"{plain['hm']:.1f}, {plain['psi']:.3f}"
            lines.append(f"| {benchmark} | {model} | {name} | {before} | {strength} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def averages(rows: list[dict[str, Any]]) -> str:
    """Whole documents against the average of their plain chunks, where that was asked for."""
    found = dict.fromkeys((row["benchmark"], row["model"]) for row in rows if row["strength"] is None)
    lines = [
        "",
        "One vector for each document: calibrated, or the average of its plain chunks. nDCG@10 × 100.",
        "",
        "| benchmark | model | vectors | beginning | middle | end | HM | PSI |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for kind in found:
        for row in rows:
            one = row["chunks"] == WHOLE or row["strength"] is None
            if one and (row["benchmark"], row["model"]) == kind:
                name = "plain" if row["strength"] == 0 else row["method"]
                by = " | ".join(f"{value:.1f}" for value in row["by"])
                lines.append(f"| {' | '.join(kind)} | {name} | {by} | {row['hm']:.1f} | {row['psi']:.3f} |")
    return "\n".join(lines) + "\n" if found else ""


def _cell(row: dict[str, Any]) -> str:
    interval = row["hm_gain_interval"]
    bounds = "" if interval is None else f" ({interval[0]:+.1f} to {interval[1]:+.1f})"
    return f"{row['hm_gain']:+.1f}{bounds}, {row['psi']:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    encoding = commands.add_parser("encode")
    encoding.add_argument("model")
    encoding.add_argument("data", type=Path)
    encoding.add_argument("folder", type=Path)
    encoding.add_argument("--name", help="what the files are called (default: the model)")
    encoding.add_argument("--chunks", type=int, nargs="*", default=[192, 384, 512, WHOLE], help="tokens; 0: whole")
    encoding.add_argument("--basket-size", type=int, default=128)
    encoding.add_argument("--tokens", type=int, help="how much of a text the model is to read")
    encoding.add_argument("--device", default="cpu")
    encoding.set_defaults(run=encode)
    scoring = commands.add_parser("score")
    scoring.add_argument("data", type=Path)
    scoring.add_argument("folder", type=Path)
    scoring.add_argument("--averages", action="store_true", help="also the average of each document's plain chunks")
    scoring.add_argument("--output", type=Path, required=True)
    scoring.set_defaults(run=score)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
