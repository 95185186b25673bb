"""What a server's processes and its GPU do while they are asked, seen from outside."""

from __future__ import annotations

import os
import re
import resource
import shutil
import statistics
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def family(process: int) -> list[int]:
    """A process and those that it started."""
    started = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *(one for child in started for one in family(int(child)))]


def memory(process: int) -> float:
    """Of a server's processes, in MiB."""
    pages = sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in family(process))
    return pages * resource.getpagesize() / 2**20


def cpu_seconds(process: int) -> dict[str, float]:
    """That a server's processes have used so far, each in all its threads, and in the one thread that launches batches."""
    (encoder,) = (one for one in family(process) if "spawn_main" in Path(f"/proc/{one}/cmdline").read_text())
    places = {
        "http_process": f"{process}",
        "model_process": f"{encoder}",
        "launching_thread": f"{encoder}/task/{encoder}",
    }
    fields = {name: Path(f"/proc/{own}/stat").read_text().rpartition(")")[2].split() for name, own in places.items()}
    return {name: (int(own[11]) + int(own[12])) / os.sysconf("SC_CLK_TCK") for name, own in fields.items()}


def figures(address: tuple[str, int]) -> dict[str, float]:
    """What a server says of itself: the sums and counts of its metrics."""
    text = urllib.request.urlopen(f"http://{address[0]}:{address[1]}/metrics", timeout=60).read().decode()
    lines = re.findall(r"^evenspan_(\w+(?:_total|_sum|_count)(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in lines}


def waited(before: dict[str, float], after: dict[str, float]) -> float:
    """Seconds between two looks at the metrics in which the thread that launches batches waited for the GPU."""
    return after["waiting_seconds_total"] - before["waiting_seconds_total"]


def batches(before: dict[str, float], after: dict[str, float]) -> dict[str, dict[str, float]]:
    """How many batches there were between two looks at the metrics, and how large they were on average."""
    made = {}
    for role in ("document", "query"):
        label = f'{{input_type="{role}"}}'
        count, tokens, texts = (
            after.get(f"{name}{label}", 0.0) - before.get(f"{name}{label}", 0.0)
            for name in ("batch_tokens_count", "batch_tokens_sum", "texts_total")
        )
        if count:
            made[role] = {"batches": count, "texts_in_one": texts / count, "tokens_in_one": tokens / count}
    return made


class Gpu:
    """The share of the time in which a GPU runs a kernel, as `nvidia-smi` samples it."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def busy(self, began: float, ended: float) -> float | None:
        """The share between two times; None where there is no such GPU."""
        own = [share for at, share in self.seen if began + 0.5 < at < ended]  # each sample is of the time before it
        return statistics.fmean(own) if own else None


@contextmanager
def watched_gpu() -> Iterator[Gpu]:
    """Sample the first GPU for the length of a block."""
    gpu = Gpu()
    command = ["nvidia-smi", "--id=0", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--loop-ms=200"]
    if shutil.which(command[0]) is None:
        yield gpu
        return
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def read() -> None:
        for line in process.stdout or ():
            if line.strip().isdecimal():
                gpu.seen.append((time.time(), int(line) / 100))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield gpu
    finally:
        process.terminate()
        process.wait()
        reader.join(5)
