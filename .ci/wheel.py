"""Build the wheel, check it, and install it with each extra into a clean environment, where its commands must work.

    python .ci/wheel.py [base eval …]    # by default all

The environments know neither the repository nor the tests. A tiny model and a few documents are made here and handed to them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
CLEAN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
CLEAN.setdefault("EVENSPAN_REPOSITORY", "https://example.org/evenspan")
# What must work with each extra; `base` is none. A line that begins with `refused` must end with 2 and name the extra.
COMMANDS = {
    "base": [
        "evenspan --version",
        "evenspan inspect model",
        "evenspan audit model --texts corpus.jsonl --output audit",
        "evenspan save model saved",
        "evenspan inspect saved",
        "refused eval: evenspan evaluate model --benchmark my-data",
        "refused report: evenspan report audit",
        "refused demo: evenspan demo",
        "refused index: evenspan index model corpus.jsonl index",
    ],
    "eval": [
        "evenspan evaluate model --benchmark my-data --baseline bm25 --baseline segment-average --segment-embedder self",
        "evenspan tune model --texts corpus.jsonl --output tuning",
    ],
    "serve": ["python ask.py", "refused serve-ray: evenspan serve model --engine ray"],
    "serve-ray": ["python ask.py --engine ray"],
    "report": [
        "evenspan audit model --texts corpus.jsonl --output audit",
        "evenspan sweep model --benchmark my-data --grid even --output sweep",
        "evenspan report audit sweep",
    ],
    "demo": ["evenspan demo --documents 4 --tokens 200"],
    "mteb": ["python -c 'from evenspan.integrations.mteb import CalibratedEncoder'"],
    "index": ["evenspan index model corpus.jsonl index", "evenspan search index 'w1 w2'"],
    "ray": ["evenspan index model corpus.jsonl parquet:index --engine ray --workers 1"],
    "docs": ["python -c 'import furo, myst_parser, sphinx'"],
}
# Start a server, ask it for a vector, and end it.
ASK = """
import json, re, subprocess, sys, urllib.request

command = [sys.executable, "-m", "evenspan", "serve", "model", "--port", "0", *sys.argv[1:]]
server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
said = []
try:
    for line in server.stdout:
        said.append(line)
        if where := re.search(r"Serving model at (http://\\S+)", line):
            break
    else:
        sys.exit("".join(said))
    body = json.dumps({"model": "model", "input": "w1 w2 w3", "input_type": "document"}).encode()
    request = urllib.request.Request(f"{where[1]}/v1/embeddings", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        (row,) = json.load(answer)["data"]
    sys.exit(0 if any(row["embedding"]) else "The vector is empty.")
finally:
    server.terminate()
    server.communicate(timeout=60)
"""


def main() -> None:
    wanted = sys.argv[1:] or list(COMMANDS)
    shutil.rmtree(DIST, ignore_errors=True)
    run([sys.executable, "-m", "build", "--outdir", DIST, ROOT])
    run([sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir()])
    (wheel,) = DIST.glob("*.whl")
    check_links(wheel)
    with tempfile.TemporaryDirectory() as folder:
        material = Path(folder) / "material"
        make_material(material)
        for extra in wanted:
            check(extra, wheel, material, Path(folder) / extra)


def check_links(wheel: Path) -> None:
    """On PyPI there is no file beside the README."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        page = files.read(name).decode()
    targets = re.findall(r'\]\((.+?)\)|src="(.+?)"', page)
    relative = [link or source for link, source in targets if not (link or source).startswith(("http", "#"))]
    if not targets or relative:
        sys.exit(f"Links of the package's page that lead nowhere: {relative or 'there are none at all'}")


def check(extra: str, wheel: Path, material: Path, folder: Path) -> None:
    """Install the wheel with an extra, and run the commands that it is for."""
    shutil.copytree(material, folder)
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    requirement = str(wheel) if extra == "base" else f"{wheel}[{extra}]"
    run([programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement])
    for line in COMMANDS[extra]:
        refused, _, command = line.partition(": ") if line.startswith("refused ") else ("", "", line)
        program, *arguments = shlex.split(command)
        done = subprocess.run(
            [programs / program, *arguments], cwd=folder, env=CLEAN, capture_output=True, text=True, check=False
        )
        missing = f"evenspan[{refused.removeprefix('refused ')}]"
        right = done.returncode == 2 and missing in done.stderr if refused else done.returncode == 0
        if not right:
            sys.exit(f"{extra}: `{command}` ended with {done.returncode}\n{done.stdout}{done.stderr}")
        print(f"{extra:<7} {command}", flush=True)
    shutil.rmtree(folder)


def make_material(folder: Path) -> None:
    """A tiny model, documents and a benchmark, made by the helpers of the tests."""
    sys.path.insert(0, str(ROOT / "tests"))
    from helpers import copies, indexes, tiny

    copies.directory(folder / "my-data")
    tiny.sentence_transformer("xlm-roberta-cls", folder / "base").save_pretrained(str(folder / "model"))
    (folder / "ask.py").write_text(ASK, encoding="utf-8")
    indexes.write_jsonl(folder / "corpus.jsonl", [{"id": f"d{n}", "text": tiny.text(200, seed=n)} for n in range(20)])


def run(command: list[str | Path]) -> None:
    subprocess.run([str(part) for part in command], check=True, env=CLEAN)


if __name__ == "__main__":
    main()
