"""The demo: what someone sees in the first two minutes."""

from __future__ import annotations

import re

from evenspan.cli import main
from evenspan.demonstration import demonstrate
from evenspan.progress import ProgressBar


def test_demo(tmp_path, capsys, monkeypatch) -> None:
    bars: list[ProgressBar] = []
    monkeypatch.setattr(ProgressBar, "__exit__", lambda bar, *error: bars.append(bar))
    plot = tmp_path / "demo.png"
    assert main(["demo", "--documents", "12", "--tokens", "512", "--plot", str(plot), "--pooling", "last"]) == 0
    printed = capsys.readouterr()
    for words in ("beginning", "PSI", "encoding time, calibrated / plain", "rank of the document", "evidence: "):
        assert words in printed.out
    assert [bar.description for bar in bars] == [
        "Loading the miniature retriever",
        "Encoding 12 documents, plain",
        "Encoding 12 documents, calibrated",
        "Timing plain against calibrated",
    ]
    assert all(bar.done == bar.total for bar in bars)
    assert printed.err == "", "no line beside the bars"
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_demo_refuses_before_it_works(tmp_path, capsys) -> None:
    assert main(["demo", "--plot", str(tmp_path / "nowhere" / "plot.png")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["demo", "--tokens", "100"]) == 2
    assert "between 512 and 8,192" in capsys.readouterr().err


def test_the_example_of_the_demo_is_true() -> None:
    found = demonstrate(documents=12, tokens=512, progress=False)
    place = re.search(r"[A-Z]\w+(?= \w)", found.example.question.partition(" ")[2])[0]
    assert place in found.example.evidence
    assert found.example.rank_after <= found.example.rank_before
    assert found.comparison.rows[0].method == "none"
