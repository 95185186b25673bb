"""Rows that cannot be used are skipped, counted and written down; too many of them stop a run."""

from __future__ import annotations

import pytest
from helpers import indexes
from helpers.indexes import content, rows

import evenspan

BAD = [
    (b'{"id": "1"}', "missing field 'text'"),
    (b'{"id": "1", "text": null}', "missing field 'text'"),
    (b'{"id": "1", "text": " \\n"}', "empty text"),
    (b'{"id": "1", "text": 7}', "field 'text' is not text"),
    (b'{"id": "1", "text": ["w1"]}', "field 'text' is not text"),
    (b'{"text": "w1"}', "missing field 'id'"),
    (b'{"id": "", "text": "w1"}', "empty id"),
    (b'{"id": 1.5, "text": "w1"}', "field 'id' is not text"),
    (b'{"id": "1", "text": "\xff"}', "invalid UTF-8"),
    (b'{"id": "1", "text": "\\ud800"}', "invalid UTF-8 in field 'text'"),
    (b'{"id": "1", "text": "w1", "note": "\\udfff"}', "invalid UTF-8 in field 'note'"),
    (b'{"id": "1", "text": "' + b"x" * 3000 + b'"}', "text longer than 2,000 characters"),
    (b'{"id": "1", "text": "' + b"x" * 2_000_000 + b'"}', "text longer than 2,000 characters"),
    (b'{"id": "1", "text": "w1", "n": 99999999999999999999}', "field 'n' does not fit 64 bits"),
    (b"[1, 2]", "not a JSON object"),
    (b"{", "no valid JSON"),
    (b"[" * 100_000, "no valid JSON"),
    (b'{"id": "good", "text": "w1"}', "the id has been used before"),
]


def test_bad_rows_are_skipped_counted_and_written_down(cls_model, tmp_path) -> None:
    source = tmp_path / "corpus.jsonl"
    good = b'{"id": "good", "text": "w1 w2"}\n\n{"id": 7, "text": "w3"}\n'
    source.write_bytes(good + b"".join(line + b"\n" for line, _ in BAD) + b'{"id": "last", "text": "w4"}')
    summary = evenspan.index(
        cls_model, source, f"parquet:{tmp_path / 'index'}", max_chars=2000, max_rejects=0.9, progress=False
    )
    assert sorted(content(f"parquet:{tmp_path / 'index'}")) == ["7", "good", "last"]
    found = indexes.rejects(summary)
    assert [(one["line"], one["reason"]) for one in found] == [(4 + at, why) for at, (_, why) in enumerate(BAD)]
    assert {one["file"] for one in found} == {str(source)}
    assert summary.skipped == len(BAD)
    assert summary.rejected["invalid UTF-8"] == 3


def test_too_many_bad_rows_stop_the_run(cls_model, tmp_path) -> None:
    entries = [*rows(20), *({"id": "x"} for _ in range(5))]
    store = f"parquet:{tmp_path / 'index'}"
    with pytest.raises(
        RuntimeError, match=r"5 of 25 rows could not be used \(missing field 'text': 5\); the limit is 10 %"
    ):
        evenspan.index(cls_model, entries, store, progress=False)
    assert evenspan.index(cls_model, entries, store, max_rejects=0.2, progress=False).total == 20
