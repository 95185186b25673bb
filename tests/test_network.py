"""What lies on this machine is looked up nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys

from helpers import tiny
from helpers.indexes import write_jsonl

COMMANDS = (
    "inspect model",
    "save model saved",
    "save model saved --calibration uniform --overwrite",
    "inspect saved",
    "audit saved --texts corpus.jsonl --sample 12 --output audit",
    "index saved corpus.jsonl parquet:index",
    "search parquet:index w1",
    "verify parquet:index",
    "evaluate saved --texts corpus.jsonl --no-cache",
)
# Runs them one after another, and writes down every host whose address is asked for.
SCRIPT = """
import shlex, socket, sys
from evenspan.cli import main

asked = []

def refused(host, *_, **__):
    asked.append((line, host))
    raise socket.gaierror(f"{host} is not to be looked up")

socket.getaddrinfo = refused
for line in sys.argv[1:]:
    code = main(shlex.split(line))
    assert code == 0, (line, code)
assert asked == [], asked
"""


def test_nothing_local_is_looked_up_on_the_hub(tmp_path) -> None:
    """Not even a folder that is not there yet, which may have the name of a model."""
    tiny.sentence_transformer("xlm-roberta-cls", tmp_path / "base").save_pretrained(str(tmp_path / "model"))
    texts = [
        {"id": str(number), "text": ". ".join(tiny.text(30, seed=number * 9 + n) for n in range(9))}
        for number in range(12)
    ]
    write_jsonl(tmp_path / "corpus.jsonl", texts)
    online = {name: value for name, value in os.environ.items() if not name.endswith("_OFFLINE")}
    command = [sys.executable, "-c", SCRIPT, *(f"{line} --quiet" for line in COMMANDS)]
    done = subprocess.run(command, cwd=tmp_path, env=online, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
