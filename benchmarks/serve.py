"""A server under load and under attack, against the encoder alone on the same texts.

    python benchmarks/serve.py --output benchmarks/results/serve_cpu.json
    python benchmarks/serve.py --shape "24 x 1,024" --processes 4 --output benchmarks/results/serve_h200.json

`evenspan serve` runs as processes of its own. 64 clients send one request after another for a minute: one in four has 1 to 4
queries of 4 to 14 words, the others 1 to 4 documents of about 500 to 900 tokens. Every vector is compared with the one that
`evenspan.load(...)` makes in process, and each text has its own, so that one that was swapped or lost is found. The encoder
alone is the project's encoder over all the texts at once, before and after; its time for the texts that were served, over the
time it took to serve them, is the throughput. On a machine that is busy otherwise the same ratio of CPU time says more.
Then come malformed requests, with the server's memory before and after.
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
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

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


def alone(model: Any, pools: dict[str, list[str]]) -> tuple[dict[str, tuple[float, float]], dict[str, np.ndarray]]:
    """Seconds, by the clock and of the CPU, and vectors of the encoder alone."""
    from evenspan.encoding import Encoder

    seconds, vectors = {}, {}
    for role, texts in pools.items():
        taken = []
        encoder = Encoder(model, role=role, unit=False, grows=True)  # type: ignore[arg-type]
        encoder.encode(texts[: len(texts) // 4])
        for _ in range(2):
            began, of_cpu = time.perf_counter(), time.process_time()
            vectors[role] = encoder.encode(texts)
            taken.append((time.perf_counter() - began, time.process_time() - of_cpu))
        seconds[role] = min(own[0] for own in taken), min(own[1] for own in taken)
    return seconds, vectors


def load(
    address: tuple[str, int], pools: dict[str, list[str]], arguments: argparse.Namespace, seconds: float
) -> tuple[list[Any], float]:
    """Everything that was asked for and answered."""
    seeds = np.array_split(np.arange(arguments.clients), arguments.processes)
    began = time.time()
    if arguments.processes == 1:
        return clients(address, pools, seconds, seeds[0].tolist()), began
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        lists = pool.starmap(clients, [(address, pools, seconds, own.tolist()) for own in seeds])
    seen = [one for own in lists for one in own]
    return seen, min(one[2] for one in seen)


def check(seen: list[Any], vectors: dict[str, np.ndarray]) -> dict[str, Any]:
    """Whether every text got its own vector."""
    wrong, refused, largest = 0, 0, 0.0
    for role, places, _, _, status, answer in seen:
        if status != 200:
            refused += 1
            continue
        data = json.loads(answer)["data"]
        got = np.stack([np.frombuffer(base64.b64decode(one["embedding"]), dtype="<f4") for one in data])
        expected = vectors[role][places]
        off = np.linalg.norm(got - expected, axis=1) / np.linalg.norm(expected, axis=1)
        # In the right order each is nearest to its own, and much nearer than to any other text.
        wrong += int((off > 0.02).sum()) + (len(got) != len(places))
        largest = max(largest, float(off.max()))
    return {"wrong_vectors": wrong, "refused": refused, "largest_relative_deviation": largest}


def served(
    seen: list[Any], base: dict[str, np.ndarray], pools: dict[str, list[str]], began: float, cpu: list[float]
) -> dict[str, Any]:
    """Throughput and delays."""
    good = [one for one in seen if one[4] == 200]
    texts = {role: sum(len(one[1]) for one in good if one[0] == role) for role in pools}
    wall = max(one[3] for one in good) - began
    needed, needed_cpu = sum(base[role] * texts[role] / len(pools[role]) for role in pools)
    figures: dict[str, Any] = {
        "seconds": wall,
        "requests": len(good),
        "texts": texts,
        "of_the_encoder_alone": needed / wall,
        "of_the_encoder_alone_by_cpu_time": needed_cpu / sum(cpu),
        "http_process_busy": cpu[0] / wall,
    }
    for role in pools:
        delays = [one[3] - one[2] for one in good if one[0] == role]
        figures[f"{role}_p50_s"], figures[f"{role}_p95_s"] = np.percentile(delays, [50, 95]).tolist()
    return figures


def family(process: int) -> list[int]:
    """A process and those that it started."""
    started = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *(one for child in started for one in family(int(child)))]


def memory(process: int) -> float:
    """Of the server's processes, in MiB."""
    pages = sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in family(process))
    return pages * resource.getpagesize() / 2**20


def cpu_seconds(process: int) -> list[float]:
    """That the server's processes have used so far, each in all its threads; the one that speaks HTTP comes first."""
    fields = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split() for one in family(process)]
    return [(int(own[11]) + int(own[12])) / os.sysconf("SC_CLK_TCK") for own in fields]


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


def texts(arguments: argparse.Namespace) -> tuple[str, Any, dict[str, list[str]]]:
    """A folder with a model, the model, and texts for it."""
    from encode_stream import Run, Words

    folder = str(Path(arguments.folder.name) / "model")
    if arguments.shape:
        made = Run(None, smoke=arguments.smoke)
        evenspan.calibrate(made.model(arguments.shape)).save_pretrained(folder)
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
    parser.add_argument("--clients", type=int, default=64)
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
        results = measure(arguments)
    print(json.dumps(results, indent=2))
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    folder, model, pools = texts(arguments)
    before, vectors = alone(model, pools)
    options = [] if arguments.batch_tokens is None else ["--batch-tokens", str(arguments.batch_tokens)]
    results: dict[str, Any] = {
        "cpus": os.cpu_count(),
        "clients": arguments.clients,
        "model": f"{arguments.shape or 'miniature:cls'}, {model.dtype}, {model.device}",
        "tokens_of_a_document": float(np.mean([len(ids) for ids in model.tokenizer(pools["document"])["input_ids"]])),
    }
    with server(folder, *options) as (address, process):
        load(address, pools, arguments, min(5, arguments.seconds))
        used = cpu_seconds(process)
        seen, began = load(address, pools, arguments, arguments.seconds)
        used = [after - before for after, before in zip(cpu_seconds(process), used, strict=True)]
        if arguments.malformed:
            results["malformed"] = attack(address, process, arguments.malformed)
    after, _ = alone(model, pools)
    results["load"] = {
        **check(seen, vectors),
        **served(seen, {role: (np.array(before[role]) + after[role]) / 2 for role in pools}, pools, began, used),
        "alone_s_before": before,
        "alone_s_after": after,
    }
    return results


if __name__ == "__main__":
    main()
