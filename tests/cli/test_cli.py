"""The command line, as people call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from helpers import copies, indexes, tiny
from helpers.paths import ORACLE

import evenspan
from evenspan.cli import app, main

COMMANDS = (
    "demo", "inspect", "audit", "index", "search", "evaluate", "sweep", "tune", "save", "report", "reproduce",
    "cache", "delete", "verify",
)  # fmt: skip
HEAVY = (
    "torch",
    "transformers",
    "sentence_transformers",
    "numpy",
    "pandas",
    "datasets",
    "pyarrow",
    "matplotlib",
    "rich",
)
QUICK = ("--no-cache", "--resamples", "0")


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, env={**os.environ, **more}, check=False
    )


def test_inspect(capsys) -> None:
    assert main(["inspect", str(ORACLE / "qwen3")]) == 0
    printed = capsys.readouterr().out
    for words in (
        "yes",
        "Qwen3Model",
        "sdpa",
        "last token",
        "layers 2–3",
        "tokens of text (512 with",
        "calibration now",
    ):
        assert words in printed


def test_inspect_json(capsys) -> None:
    assert main(["inspect", str(ORACLE / "xlmr"), "--calibration", "hard,layers=last", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["calibratable"] is True
    assert shown["pooling"] == "cls"
    assert shown["calibrated_layers"] == [3]
    assert shown["calibration"] == "hard,strength=0.5,layers=last,basket_size=128,self_mass=0.3"


def test_inspect_says_why_not(capsys, tmp_path) -> None:
    tiny.sentence_transformer("bert-cls", tmp_path / "base", pooling="max").save_pretrained(str(tmp_path / "model"))
    assert main(["inspect", str(tmp_path / "model")]) == 1
    assert "no. This model cannot be calibrated: it pools by 'max'" in capsys.readouterr().out


def test_inspect_shows_a_saved_calibration(capsys, cls_model, tmp_path) -> None:
    setting = evenspan.Calibration("uniform")
    evenspan.calibrate(cls_model, setting).save_pretrained(str(tmp_path / "saved"))
    assert main(["inspect", str(tmp_path / "saved")]) == 0
    assert f"calibration now: {setting}" in capsys.readouterr().out


def test_help_needs_nothing_heavy() -> None:
    """Of the root and of every command, in one process: what none of them imports, each does not."""
    commands = [command.callback.__name__ for command in app.registered_commands]
    assert {*COMMANDS, "serve"} <= set(commands)
    script = (
        "import sys; from evenspan.cli import main\n"
        f"for given in [[], *[[name] for name in {commands}]]: assert main([*given, '--help']) == 0\n"
        "assert main(['--version']) == 0 and main(['audit', 'x', '--texts', 'y', '--sample', '0']) == 2\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith(f"evenspan {evenspan.__version__}\n[]\n")
    assert all(f"Usage: evenspan {name} " in done.stdout for name in commands)


def test_it_is_called_in_two_ways() -> None:
    for module in ("evenspan", "evenspan.cli"):
        assert run(module, "--version").stdout == f"evenspan {evenspan.__version__}\n"
    done = run("evenspan")
    assert (done.returncode, done.stderr) == (2, "")
    assert "Commands:" in done.stdout


def test_shells_complete_commands_and_names() -> None:
    asked = {"_EVENSPAN_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    assert run("evenspan", **asked, COMP_WORDS="evenspan in").stdout.split() == ["inspect", "index"]
    asked["COMP_CWORD"] = "3"
    assert run("evenspan", **asked, COMP_WORDS="evenspan demo --pooling l").stdout.split() == ["last"]


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_all_there_is(command, materials, tmp_path, capsys, monkeypatch) -> None:
    """With --json and --quiet there is JSON on standard output, and nothing on standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "grid").write_text("soft,basket_size=16\n")
    model, benchmark = str(materials / "model"), ["--benchmark", str(materials / "beir"), "--no-cache"]
    texts = str(materials / "corpus.jsonl")
    copy = ["--path", str(copies.fineweb_posq(tmp_path / "fineweb")), "--segment-embedder", "self", "--tiny"]
    evenspan.index(model, indexes.rows(3), "parquet:there", progress=False)
    copies.directory(tmp_path / "larger", documents=40)
    monkeypatch.setattr("evenspan.demonstration.miniature", lambda _: evenspan.load(model))
    if command == "report":
        assert main(["audit", model, "--texts", texts, "-o", "audit", "--quiet"]) == 0
        capsys.readouterr()
    line, key = {
        "demo": (["--documents", "3", "--tokens", "512"], "time_ratio"),
        "inspect": ([model], "calibratable"),
        "audit": ([model, "--texts", texts], "truncation"),
        "index": ([model, texts, "parquet:new"], "added"),
        "search": (["there", "w1", "-k", "1"], 0),
        "evaluate": ([model, *benchmark, "--resamples", "0"], "comparison"),
        "sweep": ([model, *benchmark, "--grid", "grid", "--resamples", "0"], "best"),
        "tune": ([model, "--benchmark", "larger", "--no-cache", "--grid", "grid", "--resamples", "100"], "candidate"),
        "save": ([model, "fair"], "calibration"),
        "report": (["audit"], "page"),
        "reproduce": (["fineweb-posq", "--model", model, "--paper-model", "bge-m3-dense", *copy], "rows"),
        "cache": ([], "entries"),
        "delete": (["there", "--id", "d1"], "removed"),
        "verify": (["there"], "problems"),
    }[command]
    assert main([command, *line, "--json", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert json.loads(printed.out)[key] is not None


def test_a_command_says_how_far_it_is_unless_it_is_to_be_quiet(materials, capsys) -> None:
    line = ["evaluate", str(materials / "model"), "--benchmark", str(materials / "beir"), *QUICK]
    assert main(line) == 0
    assert "beir: none\n" in capsys.readouterr().err
    assert main([*line, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_tables_of_a_terminal_are_drawn(materials, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    line = ["evaluate", str(materials / "model"), "--benchmark", str(materials / "beir"), *QUICK]
    assert main([*line, "--quiet"]) == 0
    drawn = capsys.readouterr().out
    assert "* differs from none" in drawn
    assert str(evenspan.Calibration()) in "".join(drawn.split()), "a long name is not cut"
