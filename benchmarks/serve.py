r"""A server under load and under attack, against the encoder alone on the same texts.

    python benchmarks/serve.py --output benchmarks/results/serve_cpu.json
    python benchmarks/serve.py --shape "24 x 1,024" --processes 4 --clients 64 128 --documents 1500 --seconds 35 \
        --output benchmarks/results/serve_h200.json

`evenspan serve` runs as processes of its own. 64 clients send one request after another for a minute: one in four has 1 to 4
queries of 4 to 14 words, the others 1 to 4 documents of about 500 to 900 tokens. Every vector is compared with the one that
`evenspan.load(...)` makes in process, and each text has its own, so that one that was swapped or lost is found. The encoder
alone is the project's encoder over all the texts at once, before and after; its time for the texts that were served, over the
time it took to serve them, is the throughput. On a machine that is busy otherwise the same ratio of CPU time says more. Where
time goes is said beside it: the share of it in which each process, the thread that launches batches and the GPU were busy, and
how large batches were. Then come malformed requests, with the server's memory before and after. Results are written as they
come.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import cdist
from watching import batches, cpu_seconds, figures, memory, waited, watched_gpu

import evenspan

QUERIES = (4, 14)  # words
DOCUMENTS = {"miniature": (190, 330), "shape": (420, 800)}  # each about 500 to 900 tokens


class Connection:
    """HTTP/1.1 as plainly as it goes: what the clients cost is not the server's."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.reader: asyncio.StreamReader | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        if self.reader is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=2**26)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await self.writer.drain()
        answer = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(re.search(rb"content-length: (\d+)", answer)[1])  # type: ignore[index]
        content = await self.reader.readexactly(length)
        if b"connection: close" in answer:
            self.writer.close()
            self.reader = None
        return int(answer.split()[1]), content


async def client(address: tuple[str, int], pools: dict[str, list[str]], end: float, seed: int) -> list[Any]:
    """What one client asked for and got: role, places, seconds, status, answer."""
    rng, connection, seen = random.Random(seed), Connection(*address), []
    while time.time() < end:
        role = "query" if rng.random() < 0.25 else "document"
        places = [rng.randrange(len(pools[role])) for _ in range(rng.randint(1, 4))]
        request = {
            "model": "model",
            "input": [pools[role][place] for place in places],
            "input_type": role,
            "encoding_format": "base64",
        }
        body = json.dumps(request).encode()
        began = time.time()
        status, answer = await connection.post("/v1/embeddings", body)
        seen.append((role, places, began, time.time(), status, answer))
    return seen


def clients(address: tuple[str, int], pools: dict[str, list[str]], seconds: float, seeds: list[int]) -> list[Any]:
    async def run() -> list[Any]:
        end = time.time() + seconds
        lists = await asyncio.gather(*(client(address, pools, end, seed) for seed in seeds))
        return [one for own in lists for one in own]

    return asyncio.run(run())


@contextmanager
def server(folder: str, *options: str) -> Iterator[tuple[tuple[str, int], int]]:
    """The address and the process of a server, which is the one that speaks HTTP."""
    command = [sys.executable, "-m", "evenspan", "serve", folder, "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            found = re.search(r"at http://([\d.]+):(\d+)", line)
            if found:
                break
            print(line, end="", file=sys.stderr)
        else:
            raise RuntimeError("The server did not start.")
        yield (found[1], int(found[2])), process.pid
    finally:
        process.terminate()
        process.wait(60)
        print("server ended with", process.returncode)


@dataclass(frozen=True)
class Alone:
    """The encoder alone over all texts: seconds by role, by the clock and of the CPU, and its share of the GPU."""

    seconds: dict[str, tuple[float, float]]
    gpu_busy: dict[str, float | None]


def alone(model: Any, pools: dict[str, list[str]]) -> tuple[Alone, dict[str, np.ndarray]]:
    """The encoder alone, and its vectors."""
    from evenspan.encoding import Encoder

    seconds, vectors, busy = {}, {}, {}
    for role, texts in pools.items():
        taken = []
        encoder = Encoder(model, role=role, unit=False, grows=True)  # type: ignore[arg-type]
        encoder.encode(texts[: len(texts) // 4])
        with watched_gpu() as gpu:
            start = time.time()
            for _ in range(2):
                began, of_cpu = time.perf_counter(), time.process_time()
                vectors[role] = encoder.encode(texts)
                taken.append((time.perf_counter() - began, time.process_time() - of_cpu))
            busy[role] = gpu.busy(start, time.time())
        seconds[role] = min(own[0] for own in taken), min(own[1] for own in taken)
    return Alone(seconds, busy), vectors


@dataclass(frozen=True)
class Load:
    """What clients asked for and got, and what the server did meanwhile."""

    clients: int
    seen: list[Any]
    began: float
    ended: float
    used: dict[str, float]  # seconds of the CPU
    batches: dict[str, Any]
    waited: float
    gpu_busy: float | None


def load(
    address: tuple[str, int],
    process: int,
    pools: dict[str, list[str]],
    number: int,
    processes: int,
    seconds: float,
) -> Load:
    """Ask for so long, as so many clients in so many processes."""
    seeds = [own.tolist() for own in np.array_split(np.arange(number), processes)]
    said, used = figures(address), cpu_seconds(process)
    with watched_gpu() as gpu:
        if processes == 1:
            lists = [clients(address, pools, seconds, seeds[0])]
        else:
            with multiprocessing.get_context("spawn").Pool(processes) as pool:
                lists = pool.starmap(clients, [(address, pools, seconds, own) for own in seeds])
    seen = [one for own in lists for one in own]
    began, ended = min(one[2] for one in seen), max(one[3] for one in seen)
    used = {name: after - used[name] for name, after in cpu_seconds(process).items()}
    now = figures(address)
    return Load(number, seen, began, ended, used, batches(said, now), waited(said, now), gpu.busy(began, ended))


def check(seen: list[Any], vectors: dict[str, np.ndarray]) -> dict[str, Any]:
    """Whether every text got its own vector."""
    wrong, refused, largest = 0, 0, 0.0
    middles = {role: own.mean(axis=0) for role, own in vectors.items()}
    centred = {role: own - middles[role] for role, own in vectors.items()}
    for role, places, _, _, status, answer in seen:
        if status != 200:
            refused += 1
            continue
        data = json.loads(answer)["data"]
        got = np.stack([np.frombuffer(base64.b64decode(one["embedding"]), dtype="<f4") for one in data])
        expected = vectors[role][places]
        off = np.linalg.norm(got - expected, axis=1) / np.linalg.norm(expected, axis=1)
        to_all = cdist(got - middles[role], centred[role])
        is_wrong = (off > 0.02) | (to_all[np.arange(len(got)), places] > to_all.min(axis=1))  # or nearer to another's
        wrong += int(is_wrong.sum()) + (len(got) != len(places))
        largest = max(largest, float(off.max()))
    apart = {role: float(cdist(own, own)[~np.eye(len(own), dtype=bool)].min()) for role, own in centred.items()}
    lengths = {role: float(np.linalg.norm(own, axis=1).max()) for role, own in vectors.items()}
    return {
        "wrong_vectors": wrong,
        "refused": refused,
        "largest_relative_deviation": largest,
        "nearest_of_different_texts": {role: apart[role] / lengths[role] for role in apart},
    }


def served(of: Load, base: dict[str, np.ndarray], pools: dict[str, list[str]]) -> dict[str, Any]:
    """Throughput and delays."""
    good = [one for one in of.seen if one[4] == 200]
    texts = {role: sum(len(one[1]) for one in good if one[0] == role) for role in pools}
    wall = of.ended - of.began
    needed, needed_cpu = sum(base[role] * texts[role] / len(pools[role]) for role in pools)
    made: dict[str, Any] = {
        "clients": of.clients,
        "seconds": wall,
        "requests": len(good),
        "texts": texts,
        "of_the_encoder_alone": needed / wall,
        "of_the_encoder_alone_by_cpu_time": needed_cpu / (of.used["http_process"] + of.used["model_process"]),
        "busy": {**{name: own / wall for name, own in of.used.items()}, "gpu": of.gpu_busy},
        # CUDA spins while a thread waits, so that its CPU time is no measure of what it does.
        "launching_thread_waits_for_the_gpu": of.waited / wall,
        "cpu_ms_for_a_text": {name: 1000 * own / sum(texts.values()) for name, own in of.used.items()},
        "batches": of.batches,
    }
    for role in pools:
        delays = [one[3] - one[2] for one in good if one[0] == role]
        made[f"{role}_p50_s"], made[f"{role}_p95_s"] = np.percentile(delays, [50, 95]).tolist()
    return made


def malformed(number: int, seed: int = 1) -> Iterator[tuple[str, bytes]]:
    """Paths and bodies that are wrong in as many ways as come to mind."""
    rng = random.Random(seed)
    good = {"model": "model", "input": ["some words"], "input_type": "document"}
    odd: list[Any] = [None, True, -1, 0, 1e400, float("nan"), "", "\ud800", [], {}, [[]], [None], [1, "a"], "x" * 5000]
    odd += [10**40, {"a": {"b": [1]}}, [["a"]], [[1], ["b"]], [-1], [[2**70]], "\0", "query ", ["\udfff"]]
    names = [*good, "encoding_format", "dimensions", "truncate", "task", "texts", "calibration", "segments", "question"]
    for _ in range(number):
        path = rng.choice(["/v1/embeddings", "/v1/embeddings", "/v2/embed", "/v1/parts", "/v1/nothing", "/v2/embed/x"])
        kind = rng.randrange(6)
        if kind == 0:
            yield path, rng.randbytes(rng.randrange(300))
        elif kind == 1:
            whole = json.dumps(good).encode()
            yield path, whole[: rng.randrange(1, len(whole) - 1)]
        elif kind == 2:
            yield path, b"[" * rng.randrange(1, 20_000)
        elif kind == 3:
            yield path, json.dumps(rng.choice(odd)).encode()
        elif kind == 4:
            yield path, json.dumps({**good, f"{rng.randrange(10**6)}": rng.choice(odd)}).encode()
        else:
            body = {**good, rng.choice(["model", "input", "input_type"]): rng.choice(odd[:14])}
            yield path, json.dumps({**body, rng.choice(names): rng.choice(odd), "unknown": 1}).encode()


def attack(address: tuple[str, int], process: int, number: int) -> dict[str, Any]:
    """Malformed requests: what came back, and what they left behind."""

    async def run(requests: Iterator[tuple[str, bytes]]) -> dict[int, int]:
        statuses: dict[int, int] = {}

        async def one() -> None:
            connection = Connection(*address)
            for path, body in requests:
                status, _ = await connection.post(path, body)
                statuses[status] = statuses.get(status, 0) + 1

        await asyncio.gather(*(one() for _ in range(16)))
        return statuses

    asyncio.run(run(malformed(number // 10, seed=2)))  # what is allocated once
    before = memory(process)
    statuses = asyncio.run(run(malformed(number)))
    return {
        "requests": number,
        "statuses": dict(sorted(statuses.items())),
        "mib_before": before,
        "mib_after": memory(process),
    }


def told_apart(model: Any) -> Any:
    """A random model, changed: nearly the same vector comes of all texts, unless its last layer attends in earnest."""
    last = model[0].auto_model.encoder.layer[-1].attention
    for weight in (last.self.value.weight, last.output.dense.weight):
        torch.nn.init.normal_(weight, std=2 / weight.shape[0] ** 0.5)
    return model


def texts(arguments: argparse.Namespace) -> tuple[str, Any, dict[str, list[str]]]:
    """A folder with a model, the model, and texts for it."""
    from encode_stream import Run, Words

    folder = str(Path(arguments.folder.name) / "model")
    if arguments.shape:
        made = Run(None, smoke=arguments.smoke)
        evenspan.calibrate(told_apart(made.model(arguments.shape))).save_pretrained(folder)
        words = made.words
    else:
        evenspan.calibrate(evenspan.miniature("cls", device="cpu")).save_pretrained(folder)
        words = Words()
    long = DOCUMENTS["shape" if arguments.shape else "miniature"]
    pools = {
        role: [words.text(words.rng.randint(*of_role)) for _ in range(arguments.documents)]
        for role, of_role in (("document", long), ("query", QUERIES))
    }
    return folder, evenspan.load(folder), pools


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", help="random weights in float16 on a GPU, such as '24 x 1,024'; else the miniature")
    parser.add_argument("--clients", type=int, nargs="+", default=[64], help="one load after the other")
    parser.add_argument("--processes", type=int, default=1, help="of the clients")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--malformed", type=int, default=10_000)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--batch-tokens", type=int)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        arguments.folder = argparse.Namespace(name=name)
        measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    folder, model, pools = texts(arguments)
    options = [] if arguments.batch_tokens is None else ["--batch-tokens", str(arguments.batch_tokens)]
    results: dict[str, Any] = {
        "cpus": os.cpu_count(),
        "model": f"{arguments.shape or 'miniature:cls'}, {model.dtype}, {model.device}",
        "tokens_of_a_document": float(np.mean([len(ids) for ids in model.tokenizer(pools["document"])["input_ids"]])),
    }

    def write(**more: Any) -> None:
        results.update(more)
        written = json.dumps(results, indent=2)
        print(written, flush=True)
        if arguments.output:
            arguments.output.write_text(written + "\n", encoding="utf-8")

    before, vectors = alone(model, pools)
    write(alone_before=asdict(before))
    base = {role: np.array(before.seconds[role]) for role in pools}
    with server(folder, *options) as (address, process):
        turns, checked = [], []
        for number in arguments.clients:
            load(address, process, pools, number, arguments.processes, min(5, arguments.seconds))
            turns.append(load(address, process, pools, number, arguments.processes, arguments.seconds))
            checked.append(check(turns[-1].seen, vectors))
            write(load=[{**right, **served(of, base, pools)} for right, of in zip(checked, turns, strict=True)])
        if arguments.malformed:
            write(malformed=attack(address, process, arguments.malformed))
    after, _ = alone(model, pools)
    base = {role: (own + after.seconds[role]) / 2 for role, own in base.items()}
    load_ = [{**right, **served(of, base, pools)} for right, of in zip(checked, turns, strict=True)]
    write(load=load_, alone_after=asdict(after))


if __name__ == "__main__":
    main()
