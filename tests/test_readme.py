"""Every code block of the README runs."""

from __future__ import annotations

import re
import shlex

import pytest
from helpers import copies, indexes, tiny
from helpers.paths import ROOT

from evenspan.cli import main
from evenspan.demonstration import demonstrate

BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture
def bge_m3(tmp_path) -> str:
    """A tiny model of bge-m3's architecture and pooling stands in for it."""
    folder = tmp_path / "bge-m3"
    model = tiny.sentence_transformer("xlm-roberta-cls", tmp_path / "base", prompts={"query": "w1 w2 "})
    model.save_pretrained(str(folder))
    return str(folder)


def test_there_are_blocks_of_both_kinds() -> None:
    assert {kind for kind, _ in BLOCKS} == {"python", "bash", "text"}


def test_python_blocks_run_one_after_the_other(bge_m3, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    copies.directory(tmp_path / "my-data")
    names = {"passages": [tiny.text(200), tiny.text(20)], "questions": [tiny.text(5)]}
    for code in (code for kind, code in BLOCKS if kind == "python"):
        exec(compile(code.replace("BAAI/bge-m3", bge_m3), "README.md", "exec"), names)
    # What a comment promises to be printed is printed.
    promised = re.search(r"print\(evenspan.calibration_of\(model\)\) +# (.*)", "".join(code for _, code in BLOCKS))
    assert promised[1] in capsys.readouterr().out.splitlines()


def test_shell_blocks_name_commands_that_exist(bge_m3, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    copies.directory(tmp_path / "my-data")
    # What the hub has is given as a local copy.
    more = {"reproduce": ["--path", str(copies.fineweb_posq(tmp_path / "fineweb")), "--segment-embedder", "self"]}
    expected = {"inspect": "calibratable:    yes", "evaluate": "chunks-max,window=", "reproduce": "ours / paper"}
    expected |= {
        "audit": "Nothing is cut off",
        "report": "report.html",
        "save": "is saved to my-fair-model, calibrated",
    }
    expected["sweep"] = "soft,strength=0.05,layers=last,basket_size=128"
    indexes.write_jsonl(tmp_path / "corpus.jsonl", indexes.rows(20))
    expected |= {"index": "my-index: 20 documents", "search": "  1. "}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in "".join(code for kind, code in BLOCKS if kind == "bash").splitlines():
        program, *arguments = shlex.split(line, comments=True)
        if program == "make":
            assert re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE), line
        elif program == "evenspan":
            command = [argument.replace("BAAI/bge-m3", bge_m3) for argument in arguments]
            assert main([*command, *more.get(command[0], [])]) == 0
            assert expected[command[0]] in capsys.readouterr().out
        else:
            assert line in ("pip install evenspan", "pip install 'evenspan[eval]'")


def test_the_demo_prints_what_the_readme_shows() -> None:
    """Its figures do not depend on the machine beyond the last digit shown; its timing does."""
    (shown,) = (code for kind, code in BLOCKS if kind == "text")
    found = demonstrate(progress=False)
    for value in (found.before.psi, found.after.psi):
        assert f"{value:.3f}" in shown
    assert found.example.question in shown
