"""A real server process, and what tests ask it."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import evenspan
from evenspan import Calibration

from . import tiny

CALIBRATION = Calibration(basket_size=16)
JSON_HEAD = "POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LONG, SHORT = tiny.text(200), tiny.text(5)


def saved_model(folder: Path) -> str:
    """The folder `tiny-model` with a calibrated model that tells queries from documents by a prompt, too."""
    model = tiny.sentence_transformer("xlm-roberta-cls", folder / "base", prompts={"query": "w1 w2 ", "document": ""})
    evenspan.calibrate(model, CALIBRATION).save_pretrained(str(folder / "tiny-model"))
    return str(folder / "tiny-model")


@dataclass
class Server:
    """A process that serves."""

    process: subprocess.Popen[str]
    url: str
    log: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def ask(self, path: str, body: Any = None, key: str | None = None, **headers: str) -> tuple[int, Any]:
        """The status and the answer."""
        status, content, _ = self.ask_all(path, body, key, **headers)
        return status, json.loads(content)

    def ask_all(
        self, path: str, body: Any = None, key: str | None = None, **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        """The status, the bytes and the headers."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **headers}
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.url + path, data, sent)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), dict(error.headers)

    def speak(self, text: str) -> bytes:
        """What comes back for these bytes until the server hangs up."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as line:
            line.sendall(text.encode())
            parts = []
            while part := line.recv(65536):
                parts.append(part)
        return b"".join(parts)

    def memory(self) -> float:
        """Of its processes, in MiB."""
        pages = [int(Path(f"/proc/{own}/statm").read_text().split()[1]) for own in (self.process.pid, self.encoder)]
        return sum(pages) * resource.getpagesize() / 2**20

    def holds(self, line: socket.socket) -> bool:
        """Whether it has not hung up on a client, who does not see that before having read everything."""
        ends = tuple(f":{port:04X}" for port in (self.port, line.getsockname()[1]))
        rows = [row.split()[1:4] for row in Path("/proc/net/tcp").read_text().splitlines()]
        return any((own[-5:], other[-5:]) == ends and state == "01" for own, other, state in rows)

    @property
    def encoder(self) -> int:
        """The process that has the model."""
        (own,) = (child for child in children(self.process.pid) if "spawn_main" in commands(child))
        return own

    def metric(self, line: str, key: str | None = None) -> float:
        """The figure behind a name and its labels; 0 if it is not there."""
        found = re.search(rf"^{re.escape(line)} (\S+)$", self.ask_all("/metrics", key=key)[1].decode(), re.MULTILINE)
        return float(found[1]) if found else 0.0


def children(process: int) -> list[int]:
    """The processes that a process started."""
    return list(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))


def commands(process: int) -> str:
    """The command line of a process; nothing once it is dead."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@contextmanager
def serving(model: str, *options: str, status: int = 0, **environment: str) -> Iterator[Server]:
    """A server for the length of a block; it must end well, or with this status."""
    command = [sys.executable, "-m", "evenspan", "serve", model, "--device", "cpu", *options]
    command += [] if "--port" in options else ["--port", "0"]
    variables = {name: value for name, value in os.environ.items() if name != "EVENSPAN_API_KEY"} | environment
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables)
    assert process.stderr is not None
    log: list[str] = []
    address = None
    for line in process.stderr:
        log.append(line)
        if address := re.search(r"^Serving .* at (http://\S+)$", line):
            break
    assert address is not None, "".join(log)
    reader = threading.Thread(target=lambda: log.extend(process.stderr or ()), daemon=True)
    reader.start()
    try:
        yield Server(process, address[1].replace("0.0.0.0", "127.0.0.1"), log)
        if process.poll() is None:
            process.terminate()
        assert process.wait(60) == status, "".join(log)
    finally:
        process.kill()
        process.wait()
        reader.join(5)
        process.stderr.close()
        assert process.stdout is not None
        process.stdout.close()
