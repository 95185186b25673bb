"""Sources: every format, every way to name them, and rows that cannot be used."""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from helpers.indexes import rows, write_jsonl

from evenspan.corpus.documents import BadRowError, Place, Row, RowRules
from evenspan.corpus.sources import Source


def read(location, **options) -> list[tuple[str, str]]:
    return [(row.fields["id"], row.fields["text"]) for row in Source(location, **options).read()]


EXPECTED = [(one["id"], one["text"]) for one in rows(20)]


def zstd(path: Path, content: bytes) -> None:
    with pyarrow.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(content)


def as_csv(entries, separator=",") -> str:
    lines = [separator.join(("id", "text", "year"))]
    lines += [separator.join((one["id"], f'"{one["text"]}"', str(one["year"]))) for one in entries]
    return "\n".join(lines) + "\n"


def test_every_format(tmp_path) -> None:
    lines = "".join(json.dumps(one) + "\n" for one in rows(20)).encode()
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + lines)
    (tmp_path / "a.ndjson.gz").write_bytes(gzip.compress(lines))
    zstd(tmp_path / "a.jsonl.zst", lines)
    (tmp_path / "a.csv").write_text(as_csv(rows(20)))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(as_csv(rows(20)).encode()))
    zstd(tmp_path / "a.csv.zst", as_csv(rows(20)).encode())
    (tmp_path / "a.tsv").write_text(as_csv(rows(20), "\t"))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows(20)), tmp_path / "a.parquet", row_group_size=7)
    for path in sorted(tmp_path.iterdir()):
        assert read(path) == EXPECTED, path.name
        size = Source(path).size()
        assert [row.position for row in Source(path).read()][-1] <= size == path.stat().st_size
    (tmp_path / "a.jsonl").rename(tmp_path / "noname")
    with pytest.raises(ValueError, match="does not show its format"):
        read(tmp_path / "noname")
    assert read(tmp_path / "noname", format="jsonl") == EXPECTED


@pytest.mark.parametrize("ending", ["", ".gz", ".zst", ".parquet"])
def test_standard_input_from_a_file(tmp_path, monkeypatch, ending: str) -> None:
    lines = "".join(json.dumps(one) + "\n" for one in rows(20)).encode()
    path = tmp_path / "piped"
    if ending == ".zst":
        zstd(path, lines)
    elif ending == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows(20)), path)
    else:
        path.write_bytes(gzip.compress(lines) if ending else lines)
    with path.open() as piped:
        monkeypatch.setattr(sys, "stdin", piped)
        assert read("-", format="parquet" if ending == ".parquet" else None) == EXPECTED


@pytest.mark.parametrize("compressed", [False, True])
def test_standard_input_from_a_pipe_that_comes_bit_by_bit(monkeypatch, compressed: bool) -> None:
    lines = "".join(json.dumps(one) + "\n" for one in rows(20)).encode()
    reading, writing = os.pipe()

    def write() -> None:
        content = gzip.compress(lines) if compressed else lines
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            for part in (content[:1], content[1:9], content[9:]):
                pipe.write(part)
                time.sleep(0.05)

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(reading) as piped:
        monkeypatch.setattr(sys, "stdin", piped)
        found = [(row.place.file, row.fields["id"], row.fields["text"]) for row in Source("-").read()]
    writer.join()
    assert found == [("stdin", *one) for one in EXPECTED]


def test_folders_globs_and_rows(tmp_path) -> None:
    (tmp_path / "deep").mkdir()
    write_jsonl(tmp_path / "deep" / "1.jsonl", rows(20)[:5])
    (tmp_path / "deep" / "2.csv").write_text(as_csv(rows(20)[5:12]))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows(20)[12:]), tmp_path / "deep" / "3.parquet")
    (tmp_path / "README.md").write_text("no document")
    (tmp_path / ".hidden.jsonl").write_text("no row")
    assert read(tmp_path) == EXPECTED
    assert read(str(tmp_path / "**" / "[12].*")) == EXPECTED[:12]
    assert read(iter(rows(20))) == EXPECTED
    for nothing in (tmp_path / "none", tmp_path / "*.xml"):
        with pytest.raises(FileNotFoundError, match="There is no file or folder"):
            read(nothing)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="contains no readable file"):
        read(tmp_path / "empty")


def test_plain_text_folders(tmp_path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("first\nfile", encoding="utf-8")
    (tmp_path / "sub" / "b.md.gz").write_bytes(gzip.compress(b"second"))
    (tmp_path / "sub" / "c.txt").write_bytes(b"\xff\xfe")
    found = list(Source(tmp_path).read())
    assert [row.fields for row in found] == [
        {"id": "a.txt", "text": "first\nfile"},
        {"id": "sub/b.md.gz", "text": "second"},
        None,
    ]
    assert found[2].problem == "invalid UTF-8"


def test_a_hub_dataset(tmp_path) -> None:
    """A local copy with the same layout stands in for it."""
    (tmp_path / "data").mkdir()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows(20)), tmp_path / "data" / "train-00000-of-00001.parquet")
    assert read(f"hf:{tmp_path}") == EXPECTED
    assert read(f"hf:{tmp_path}:default:train") == EXPECTED


def test_bad_rows_of_csv_and_parquet(tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,text\n1,"two\nlines"\n2,\xff\n3,a,b\n4\n5,' + b"x" * 300_000 + b"\n")
    found = list(Source(path).read())
    assert [row.place.line for row in found] == [2, 4, 5, 6, 7]
    assert found[0].fields == {"id": "1", "text": "two\nlines"}
    assert found[2].problem == "more cells than the header has"
    for row, problem in ((found[1], "invalid UTF-8"), (found[3], "missing field 'text'")):
        with pytest.raises(BadRowError, match=problem):
            RowRules().document(row)
    assert len(found[4].fields["text"]) == 300_000
    broken = pyarrow.StringArray.from_buffers(
        2, pyarrow.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0"), pyarrow.py_buffer(b"ok\xff\xff")
    )
    table = pyarrow.table({"id": ["1", "2"], "text": broken})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert [(row.problem, row.place.line) for row in Source(tmp_path / "a.parquet").read()] == [
        (None, 1),
        ("invalid UTF-8", 2),
    ]


def test_a_file_that_ends_too_early_stops_the_run(tmp_path) -> None:
    whole = gzip.compress(b"".join(json.dumps(one).encode() + b"\n" for one in rows(200)))
    (tmp_path / "a.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(OSError, match=r"a.jsonl.gz, after line \d+: cannot read on"):
        list(Source(tmp_path / "a.jsonl.gz").read())


def test_ids_from_lines() -> None:
    row = Row(Place("a.jsonl", 3), {"text": "w1", "year": 1})
    assert RowRules(id_field="@line").document(row).id == "a.jsonl:3"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("id,text,note (a|b|c|d)\n1,x,y\n", ["x"]),
        ('"a;b;c",text\n1,x\n', ["x"]),
        ("id;text\n1;x, y\n", ["x, y"]),
        ("\n\nid,text\n1,x\n", ["x"]),
        ("text,text\nhello,\n", ["hello"]),
        ('id,text\n1,"open\n2,b\n3,c\n', [None, "b", "c"]),
        ('id,text\n1,a\n2,"open', ["a", None]),
        ('id,text\n1,"Foo" is a book\n2,"two\nlines"\n', ["Foo is a book", "two\nlines"]),
    ],
)
def test_awkward_csv(content, expected, tmp_path) -> None:
    (tmp_path / "a.csv").write_text(content, newline="")
    found = list(Source(tmp_path / "a.csv").read())
    assert [row.fields["text"] if row.fields else None for row in found] == expected
    assert all("a quote that is never closed" in row.problem for row in found if row.fields is None)
    lines = content.splitlines()
    assert all(text is None or text[:3] in lines[row.place.line - 1] for row, text in zip(found, expected, strict=True))


def test_csv_in_another_encoding(tmp_path) -> None:
    (tmp_path / "a.csv").write_bytes("id,text\n1,x\n".encode("utf-16"))
    with pytest.raises(ValueError, match=r"a\.csv is not in UTF-8"):
        list(Source(tmp_path / "a.csv").read())


def texts(path: Path) -> list[str]:
    """The text of each row, or why it has none."""
    found = []
    for row in Source(path).read():
        try:
            found.append(RowRules(id_field="@line").document(row).text)
        except BadRowError as error:
            found.append(str(error))
    return found


def test_parquet_in_another_encoding(tmp_path) -> None:
    bad = pyarrow.array([b"fine", b"\xff", None]).cast(pyarrow.binary())
    column = pyarrow.StringArray.from_buffers(3, bad.buffers()[1], bad.buffers()[2], bad.buffers()[0], bad.null_count)
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), tmp_path / "bad.parquet")
    assert texts(tmp_path / "bad.parquet") == ["fine", "invalid UTF-8", "missing field 'text'"]
    dictionary = pyarrow.table({"text": pyarrow.array(["a", "b", "a"]).dictionary_encode()})
    pyarrow.parquet.write_table(dictionary, tmp_path / "dictionary.parquet")
    assert texts(tmp_path / "dictionary.parquet") == ["a", "b", "a"]


def test_values_that_python_does_not_have_are_read_only_where_they_are_wanted(tmp_path) -> None:
    dates = pyarrow.array([10**15, 1], pyarrow.timestamp("ms"))  # of which the first is none that Python has
    table = pyarrow.table({"text": [b"a", b"b"], "when": dates, "many": [[0.0] * 9] * 2})
    pyarrow.parquet.write_table(table, tmp_path / "dates.parquet")
    first, second = texts(tmp_path / "dates.parquet")
    assert "a value that cannot be read" in first
    assert second == "b"
    wanted = Source(tmp_path / "dates.parquet", wanted=("id",)).read()
    assert [row.fields for row in wanted] == [{"text": b"a"}, {"text": b"b"}]
