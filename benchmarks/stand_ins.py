"""How well sentences of documents stand in for questions: do they rank settings, methods and lengths of chunks as questions do?

    python benchmarks/stand_ins.py rank miniature:cls DATA ranks/ [--device cuda]
    python benchmarks/stand_ins.py table DATA [DATA ...] ranks/ --output benchmarks/results/stand_ins.json

DATA is a folder in BEIR layout whose queries have positions. `rank` writes where each query finds its document under every
setting and method, one small file for each model and data set: it needs no packages for evaluation. `table` needs no model
and can run on another machine: nDCG@10 by position, rank correlations, and what is chosen without labels, as JSON and Markdown.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ranks import Ranks, ranked, results, saved
from ranks import save as save_ranks

import evenspan
from evenspan import Calibration
from evenspan.encoding import Encoder, unit_length
from evenspan.evaluation import load_benchmark
from evenspan.evaluation.benchmark import POSITIONS, Benchmark
from evenspan.evaluation.methods import Calibrated, ChunksMax, LateChunking, Method, Plain, WindowAverage
from evenspan.evaluation.methods.base import average
from evenspan.evaluation.scores import EvaluationResult
from evenspan.evaluation.search import DocumentVectors
from evenspan.models.inspecting import inspect_model
from evenspan.models.reading import room_for_text

KINDS = {"real": None, "sentences": 0.0, "half of their words": 0.5}  # of queries, by the share of words left out
CHUNKED = Calibration(basket_size=64, partition="even")
CHUNKS = (64, 128, 256, 512, 768)


def settings(model: Any, longest: int) -> list[Calibration]:
    """At least twenty that the model can take: strengths, layers and sizes of baskets, and the variants where there are any."""
    sizes = (128, 256) if longest > 600 else (32, 64, 128)
    each = [
        Calibration("soft", strength, layers, size, partition=partition)
        for size, layers, strength, partition in product(
            sizes, ("half", "last"), (0.25, 0.5, 0.75, 1.0), ("paper", "even")
        )
    ]
    each += [
        Calibration(variant, strength, "half", sizes[0]) for variant in ("uniform", "hard") for strength in (0.5, 1.0)
    ]
    return [setting for setting in each if inspect_model(model, setting).calibratable]


def methods(model: Any) -> list[Method]:
    """Whole documents, chunks of several lengths and their averages, plain and calibrated."""
    room = room_for_text(model)
    found: list[Method] = [Plain(), Calibrated(), Calibrated(Calibration(strength=0.75))]
    for size in (size for size in CHUNKS if size <= room):
        found.append(ChunksMax(size))
        if size >= CHUNKED.fewest_tokens:
            found.append(ChunksMax(size, calibration=CHUNKED))
    return [*found, LateChunking(128), LateChunking(256)]


def benchmarks(data: Path, limit: int | None) -> dict[str, Benchmark]:
    """The questions, and the two kinds of stand-ins, on the same documents."""
    real = load_benchmark(data, limit=limit)
    texts = f"texts:{data / 'corpus.jsonl'}"
    everything = {"sample": 10**6, "sentences": 9}
    made = {
        kind: load_benchmark(texts, left_out=share, **everything) for kind, share in KINDS.items() if share is not None
    }
    return {"real": real, **{kind: _only(benchmark, real) for kind, benchmark in made.items()}}


def _only(stand_ins: Benchmark, real: Benchmark) -> Benchmark:
    """Stand-ins in the documents that are searched with real questions."""
    (collection,) = stand_ins.collections
    known = {f"corpus.jsonl:{name}" for name in real.corpus}
    queries = tuple(query for query in collection.queries if set(collection.relevance[query.id]) <= known)
    corpus = {f"corpus.jsonl:{name}": text for name, text in real.corpus.items()}
    return replace(stand_ins, collections=(replace(collection, corpus=corpus, queries=queries),))


def rank(options: argparse.Namespace) -> None:
    """Where each query finds its document, under every setting and method."""
    from evenspan.sweeps.vectors import encode_settings

    more = {} if options.model.startswith("miniature:") else {"model_kwargs": {"dtype": "float32"}}
    model = evenspan.load(options.model, device=options.device, **more)
    if options.half:
        model = model.half()
    searched = benchmarks(options.data, options.limit)
    corpus = searched["real"].corpus
    texts, encoder = list(corpus.values()), Encoder(model)
    asked = {kind: Encoder(model, role="query").encode([q.text for q in b.queries]) for kind, b in searched.items()}
    rows: list[dict[str, Any]] = []
    ranks: dict[str, list[Ranks]] = {kind: [] for kind in KINDS}

    def add(family: str, name: str, vectors: Sequence[NDArray[np.float32]]) -> None:
        counts = np.array([len(of_text) for of_text in vectors])
        documents = DocumentVectors(list(corpus), unit_length(np.concatenate(vectors)), counts)
        for kind, benchmark in searched.items():
            ids = list(benchmark.collections[0].corpus)  # the same texts, named otherwise
            ranks[kind].append(ranked(benchmark, asked[kind], replace(documents, ids=ids)))
        rows.append({"family": family, "method": name, "vectors": len(documents.vectors) / len(corpus)})
        print(f"{options.name}: {name}", flush=True)

    def save() -> None:
        digests = {kind: benchmark.digest() for kind, benchmark in searched.items()}
        about = {
            "data": options.data.name,
            "model": options.name,
            "rows": rows,
            "limit": options.limit,
            "digests": digests,
        }
        arrays = {kind.replace(" ", "_"): np.stack(each) for kind, each in ranks.items()}
        save_ranks(options.folder / f"{options.data.name}-{options.name}.npz", about, arrays)

    grid = settings(model, max(map(len, texts)) // 4)[: options.settings]
    swept = encode_settings(encoder, texts, grid, detached=False)
    add("settings", "none", list(swept.plain[:, None]))
    for setting in grid:
        add("settings", str(setting), list(swept[setting][:, None]))
    save()
    for method in methods(model)[: options.settings]:
        vectors = method.encode(encoder, texts)
        add("methods", method.name, vectors)
        if isinstance(method, ChunksMax) and method.calibration is None:  # of the same chunks
            add("methods", WindowAverage(method.window).name, [average(each, model) for each in vectors])
    save()


def table(options: argparse.Namespace) -> None:
    """The figures of all files of ranks."""
    folders = {folder.name: folder for folder in options.data}
    found = []
    for path, about, arrays in saved(options.folder):
        ranks = {kind: arrays[kind.replace(" ", "_")] for kind in KINDS}
        searched = benchmarks(folders[about["data"]], about["limit"])
        if {kind: benchmark.digest() for kind, benchmark in searched.items()} != about["digests"]:
            raise SystemExit(f"{path} was made of other data or by other code: rank again.")
        each = {kind: list(results(searched[kind], about["rows"], ranks[kind], intervals=False)) for kind in KINDS}
        found.append({"data": about["data"], "model": about["model"], **_figures(about["rows"], each, searched)})
        print(json.dumps({name: value for name, value in found[-1].items() if name != "rows"}), flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    options.output.with_suffix(".md").write_text(markdown(found), encoding="utf-8")


def _figures(
    rows: Sequence[dict[str, Any]], each: dict[str, list[EvaluationResult]], searched: dict[str, Benchmark]
) -> dict[str, Any]:
    figures: dict[str, Any] = {"documents": len(searched["real"].corpus), "kinds": {}}
    figures["queries"] = {kind: len(benchmark.queries) for kind, benchmark in searched.items()}
    families = {
        name: [place for place, row in enumerate(rows) if row["family"] == name] for name in ("settings", "methods")
    }
    figures |= {name: len(places) for name, places in families.items()}
    figures["rows"] = [
        row | {kind: _of(results[place]) for kind, results in each.items()} for place, row in enumerate(rows)
    ]
    real = [result.harmonic_mean or 0.0 for result in each["real"]]
    tried = families["settings"]
    figures |= {"plain": real[tried[0]], "best": max(real[place] for place in tried)}
    figures["best_setting"] = each["real"][max(tried, key=real.__getitem__)].method
    for kind in [kind for kind in KINDS if kind != "real"]:
        correlated = {
            f"{name} {figure}": _correlation(
                [getattr(each["real"][p], figure) for p in places], [getattr(each[kind][p], figure) for p in places]
            )
            for name, places in families.items()
            for figure in ("harmonic_mean", "ndcg")
        }
        highest = max(tried, key=lambda place: each[kind][place].harmonic_mean or 0.0)
        answer = _tuned(searched[kind], [each[kind][place] for place in tried])
        chosen = next(place for place in tried if each[kind][place].method == answer)
        levels = [
            abs(own.harmonic_mean - other.harmonic_mean) for own, other in zip(each[kind], each["real"], strict=True)
        ]
        figures["kinds"][kind] = {
            "correlation": correlated,
            "highest": each[kind][highest].method,
            "real_hm_of_highest": real[highest],
            "tuned": answer,
            "real_hm_of_tuned": real[chosen],
            "mean_level_difference": float(np.mean(levels)),
        }
    return figures


def _of(result: EvaluationResult) -> dict[str, Any]:
    by = [round(100 * result.groups[name].ndcg, 2) for name in POSITIONS]
    mean, psi = round(100 * (result.harmonic_mean or 0.0), 2), round(result.psi or 0.0, 4)
    return {"by": by, "hm": mean, "psi": psi, "ndcg": round(100 * result.ndcg, 2)}


def _correlation(one: Sequence[float], other: Sequence[float]) -> float:
    from scipy import stats

    if len(one) < 3:
        return float("nan")
    return round(float(stats.spearmanr(one, other).statistic), 3)


def _tuned(benchmark: Benchmark, results: Sequence[EvaluationResult]) -> str:
    """What `tune` answers with its defaults; `none` for leave it off."""
    from evenspan.sweeps.sweep_result import SweepResult
    from evenspan.sweeps.tuning import decide

    plain, *others = results
    swept = SweepResult(plain, {Calibration.parse(result.method): result for result in others}, {})
    return str(decide(benchmark, swept).calibration or "none")


def markdown(found: Sequence[dict[str, Any]]) -> str:
    """The figures as two tables."""
    lines = [
        "# Sentences of documents instead of questions",
        "",
        "Rank correlation (Spearman) of figures by stand-in queries with those by real questions, over settings of whole "
        "documents, and over methods: whole documents, chunks of several lengths and their averages, plain and calibrated. "
        "Nine sentences of a document at most, three from each third. `python benchmarks/stand_ins.py`",
        "",
        "| model, data | stand-ins | settings: HM, nDCG@10 | methods: HM, nDCG@10 | level of HM off by |",
        "|---|---|---|---|---:|",
    ]
    for row in found:
        for kind, by in row["kinds"].items():
            pairs = [
                f"{by['correlation'][f'{name} harmonic_mean']:.2f}, {by['correlation'][f'{name} ndcg']:.2f} ({row[name]})"
                for name in ("settings", "methods")
            ]
            level = f"{100 * by['mean_level_difference']:.1f}"
            lines.append(f"| {row['model']}, {row['data']} | {kind} | {' | '.join(pairs)} | {level} |")
    lines += [
        "",
        "Real HM × 100 of the setting that stand-ins choose. *Highest*: the highest HM by stand-ins. *`tune`*: its answer, "
        "chosen on half of the documents and confirmed on the others.",
        "",
        "| model, data | stand-ins | plain | highest | `tune` | best possible |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in found:
        for kind, by in row["kinds"].items():
            values = [row["plain"], by["real_hm_of_highest"], by["real_hm_of_tuned"], row["best"]]
            cells = [f"{100 * value:.2f}" for value in values]
            cells[1] += f" ({by['highest']})"
            cells[2] += f" ({by['tuned'].replace('none', 'leave it off')})"
            cells[3] += f" ({row['best_setting']})"
            lines.append(f"| {row['model']}, {row['data']} | {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    ranking = commands.add_parser("rank")
    ranking.add_argument("model")
    ranking.add_argument("data", type=Path)
    ranking.add_argument("folder", type=Path)
    ranking.add_argument("--device")
    ranking.add_argument("--name", help="what the model is called (default: its own name)")
    ranking.add_argument("--limit", type=int, help="a quick look: so many documents")
    ranking.add_argument("--settings", type=int, help="a quick look: so many settings and methods")
    ranking.add_argument("--half", action="store_true", help="float16: on some CPUs more than twice as fast")
    ranking.set_defaults(run=rank)
    tables = commands.add_parser("table")
    tables.add_argument("data", type=Path, nargs="+")
    tables.add_argument("folder", type=Path)
    tables.add_argument("--output", type=Path, default=Path("benchmarks/results/stand_ins.json"))
    tables.set_defaults(run=table)
    options = parser.parse_args()
    if getattr(options, "model", None):
        options.name = options.name or options.model.rstrip("/").rpartition("/")[2].replace(":", "-")
    options.run(options)


if __name__ == "__main__":
    main()
