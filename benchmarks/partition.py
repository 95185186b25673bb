"""The paper's baskets and even ones: chunks of three lengths, scored by their maximum, and whole documents.

    python benchmarks/partition.py rank miniature:cls DATA ranks/ [--chunks 192 384 512] [--device cuda]
    python benchmarks/partition.py table DATA [DATA ...] ranks/ --output benchmarks/results/partition.json

DATA is a folder in BEIR layout whose queries have positions. `rank` writes where each query finds its document under every
setting, one small file for each model and length of chunks, and leaves out files that are there: it can be interrupted.
`table` needs no model, and can run on another machine: nDCG@10 by position, HM with its 95 % interval, and PSI, as JSON and as
tables.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ranks import ranked, results, save, saved

from evenspan import Calibration
from evenspan.corpus.chunks import Chunker
from evenspan.encoding import Encoder
from evenspan.evaluation import load_benchmark
from evenspan.evaluation.benchmark import POSITIONS, Benchmark
from evenspan.evaluation.comparing import compare
from evenspan.evaluation.methods.base import average
from evenspan.evaluation.scores import EvaluationResult
from evenspan.evaluation.search import DocumentVectors

STRENGTHS = (0.5, 0.75, 1.0)
WHOLE = 0  # a length of chunks: the whole document is one


def settings(basket_size: int) -> list[Calibration]:
    """The plain model, and both partitions at every strength."""
    each = product(STRENGTHS, ("paper", "even"))
    calibrated = [Calibration(strength=s, basket_size=basket_size, partition=p) for s, p in each]  # type: ignore[arg-type]
    return [Calibration(strength=0.0, basket_size=basket_size), *calibrated]


def rank(options: argparse.Namespace) -> None:
    """Ranks of a model under every setting."""
    import evenspan
    from evenspan.sweeps import encode as encode_settings

    more = {} if options.model.startswith("miniature:") else {"model_kwargs": {"dtype": "float32"}}
    model = evenspan.load(options.model, device=options.device, **more)
    if options.half:
        model = model.half()
    if options.tokens:
        model.max_seq_length = options.tokens
    benchmark = load_benchmark(options.data)
    (collection,) = benchmark.collections
    name = options.name or options.model.replace(":", "-")
    asked: NDArray[np.float32] | None = None
    for size in options.chunks:
        path = options.folder / f"{options.data.name}-{name}-{size}.npz"
        if path.exists():
            continue
        if asked is None:
            asked = Encoder(model, role="query", unit=True).encode([query.text for query in collection.queries])
        texts = list(collection.corpus.values())
        pieces = [[text] for text in texts] if size == WHOLE else Chunker(size, cut="tokens").chunks(model, texts)
        counts = np.array([len(of_text) for of_text in pieces])
        together = [piece for of_text in pieces for piece in of_text]
        swept = encode_settings(model, together, settings(options.basket_size), normalize_embeddings=True)
        documents = {
            str(setting): DocumentVectors(list(collection.corpus), own, counts) for setting, own in swept.items()
        }
        if options.averages and size != WHOLE:
            averaged = [average(own, model) for own in np.split(next(iter(swept.values())), np.cumsum(counts)[:-1])]
            ones = np.ones(len(counts), dtype=np.int64)
            documents[f"window-average,window={size}"] = DocumentVectors(
                list(collection.corpus), np.concatenate(averaged), ones
            )
        rows = [{"method": method, "vectors": len(own.vectors) / len(counts)} for method, own in documents.items()]
        about = {"data": options.data.name, "model": name, "chunks": size, "rows": rows, "digest": benchmark.digest()}
        save(path, about, {"ranks": np.stack([ranked(benchmark, asked, own) for own in documents.values()])})
        print(f"{name}, chunks of {size or 'whole documents'}", flush=True)


def tables(options: argparse.Namespace) -> None:
    """Figures of all files of ranks, against the plain model on the same chunks; other rows of the output stay."""
    benchmarks = {folder.name: load_benchmark(folder) for folder in options.data}
    rows: list[dict[str, Any]] = []
    for path, about, arrays in saved(options.folder):
        benchmark = benchmarks[about["data"]]
        if benchmark.digest() != about["digest"]:
            raise SystemExit(f"{path} was made of other data: rank again.")
        found = list(results(benchmark, about["rows"], arrays["ranks"], intervals=True))
        for result, compared in zip(found, compare(found).rows, strict=True):
            rows.append(_row(benchmark, about["model"], about["chunks"], result, compared))
        print(path.name, flush=True)
    before = json.loads(options.output.read_text("utf-8")) if options.output.exists() else []
    made_now = {_kind(row) for row in rows}
    rows += [row for row in before if _kind(row) not in made_now]
    rows.sort(key=lambda row: (row["benchmark"] != "newwiki-long-en", row["model"], row["chunks"] or 10**6))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
    options.output.with_suffix(".md").write_text(table(rows) + averages(rows), encoding="utf-8")


def _kind(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["benchmark"], row["model"], row["chunks"]


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
    for benchmark, model, size in dict.fromkeys(map(_kind, rows)):
        here = [row for row in rows if _kind(row) == (benchmark, model, size)]
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
    ranking = commands.add_parser("rank")
    ranking.add_argument("model")
    ranking.add_argument("data", type=Path)
    ranking.add_argument("folder", type=Path)
    ranking.add_argument("--name", help="what the model is called (default: its own name)")
    ranking.add_argument("--chunks", type=int, nargs="*", default=[192, 384, 512, WHOLE], help="tokens; 0: whole")
    ranking.add_argument("--basket-size", type=int, default=128)
    ranking.add_argument("--tokens", type=int, help="how much of a text the model is to read")
    ranking.add_argument("--averages", action="store_true", help="also the average of each document's plain chunks")
    ranking.add_argument("--device", default="cpu")
    ranking.add_argument("--half", action="store_true", help="float16: on some CPUs more than twice as fast")
    ranking.set_defaults(run=rank)
    made = commands.add_parser("table")
    made.add_argument("data", type=Path, nargs="+")
    made.add_argument("folder", type=Path)
    made.add_argument("--output", type=Path, default=Path("benchmarks/results/partition.json"))
    made.set_defaults(run=tables)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
