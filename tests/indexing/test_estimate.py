"""`--dry-run`: what a run would do, without doing it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import tiny
from helpers.indexes import content, rows, write_jsonl

import evenspan
from evenspan.cli import main
from evenspan.indexing import IndexEstimate

COUNTED = (
    "added",
    "replaced",
    "unchanged",
    "total",
    "tokens",
    "truncated",
    "unread",
    "chunks",
    "max_tokens",
    "rejected",
)
DAMAGED = [{"id": "bad"}, {"id": "long", "text": tiny.text(400)}]


@pytest.mark.parametrize(
    "options", [{}, {"chunk_tokens": 24, "overlap": 8, "calibration": "soft,basket_size=8"}, {"keep_text": False}]
)
def test_an_estimate_counts_what_a_run_counts(options, index, store, tmp_path) -> None:
    entries = [*rows(50), *DAMAGED]
    before = set(tmp_path.rglob("*"))
    estimate = index(entries, dry_run=True, **options)
    assert set(tmp_path.rglob("*")) == before
    assert isinstance(estimate, IndexEstimate)
    summary = index(entries, **options)
    assert {name: getattr(estimate, name) for name in COUNTED} == {name: getattr(summary, name) for name in COUNTED}
    assert estimate.sampled > 0
    assert estimate.encoding_seconds > 0
    rows_made = estimate.chunks or 51
    assert estimate.bytes > rows_made * 32 * 4
    if options.get("keep_text", True):
        assert estimate.bytes > rows_made * 32 * 4 + sum(len(entry.get("text", "")) for entry in entries)


def test_an_estimate_of_an_update_counts_what_is_new(index, store) -> None:
    index(rows(30))
    before = content(**store)
    changed = rows(40)
    changed[3]["text"] = "w1"
    estimate = index(changed, dry_run=True)
    assert (estimate.added, estimate.replaced, estimate.unchanged, estimate.total) == (10, 1, 29, 40)
    assert index(rows(30), dry_run=True).encoding_seconds == 0
    assert index(changed, dry_run=True, replace=True).added == 40
    assert content(**store) == before
    with pytest.raises(ValueError, match="made with other settings"):
        index(rows(3), "none", dry_run=True)


def test_the_command_line_estimates(model_folder, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(Path("corpus.jsonl"), [*rows(20), *DAMAGED])
    command = ["index", model_folder, "corpus.jsonl", "there", "--device", "cpu", "--dry-run"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Truncated after 254 tokens of text: 1 of 21 documents (4.8 %); ")
    assert lines[1] == "there: 21 documents"
    assert lines[-1] == "Nothing was written: this was a dry run."
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl"]
    assert main([*command, "--json", "--chunk-tokens", "24", "--calibration", "none"]) == 0
    assert json.loads(capsys.readouterr().out)["chunks"] > 21
    assert main([*command, "--engine", "ray"]) == 2
    assert "A dry run measures this machine" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="could not be used"):
        evenspan.index(model_folder, [{"id": "x", "text": ""}] * 5, "there", dry_run=True, progress=False)
