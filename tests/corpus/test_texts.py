"""What commands read texts from: files, folders, fields, encodings."""

from __future__ import annotations

import gzip
import json

import pytest

from evenspan.corpus.texts import read_texts


def test_reading_texts(tmp_path) -> None:
    rows = [
        b'{"_id": "a", "text": "first"}',
        b'{"_id": "b", "text": ""}',
        b'{"_id": "c", "text": 3}',
        b'{"_id": "d"}',
        b'{"text": "\xff"}',
        b"no json",
        b"[1]",
        b"",
        b'{"text": "last"}',
    ]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(rows))
    found = read_texts(tmp_path / "rows.jsonl")
    assert found.names == ["rows.jsonl:a", "rows.jsonl:9"]
    assert found.texts == ["first", "last"]
    assert found.left_out == {
        "empty text": 1, "field 'text' is not text": 1, "missing field 'text'": 1, "invalid UTF-8": 1, "no valid JSON": 1,
        "not a JSON object": 1,
    }  # fmt: skip
    assert found.in_words().startswith("6 of 8 rows were left out")


def test_reading_other_files(tmp_path) -> None:
    pandas = pytest.importorskip("pandas")
    folder = tmp_path / "texts"
    (folder / "sub").mkdir(parents=True)
    (folder / "README.md").write_text("about the texts", encoding="utf-8")  # no document
    (folder / "sub" / "b.csv").write_bytes(b'id,text\n1,"two\nlines"\n2,\n3,\xff\n')
    pandas.DataFrame({"text": ["x", None, "y"]}).to_parquet(folder / "c.parquet")
    (folder / "ignored.pdf").write_bytes(b"%PDF")
    found = read_texts(folder)
    assert dict(zip(found.names, found.texts, strict=True)) == {
        "c.parquet:1": "x", "c.parquet:3": "y", "sub/b.csv:1": "two\nlines",
    }  # fmt: skip
    assert found.left_out == {"invalid UTF-8": 1, "missing field 'text'": 2}
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.txt").write_text("a text", encoding="utf-8")
    (tmp_path / "plain" / "bad.txt").write_bytes(b"\xff\xfe\x00")
    found = read_texts(tmp_path / "plain")
    assert (found.names, found.texts, found.left_out) == (["a.txt"], ["a text"], {"invalid UTF-8": 1})
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}'))
    assert read_texts(tmp_path / "packed.jsonl.gz").names == ["packed.jsonl.gz:1"]
    (tmp_path / "fields.csv").write_text("body,title\nx,y\n")
    with pytest.raises(ValueError, match=r"no field 'text'\. Choose one with --field: 'body', 'title'"):
        read_texts(tmp_path / "fields.csv")
    assert read_texts(tmp_path / "fields.csv", "body").texts == ["x"]
    with pytest.raises(FileNotFoundError):
        read_texts(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="does not show its format"):
        read_texts(folder / "ignored.pdf")


def test_reading_what_others_trip_over(tmp_path) -> None:
    (tmp_path / "semicolons.csv").write_bytes(b"id;text\n\xe9;hello\n2;world, again\n3;a;b\n")
    found = read_texts(tmp_path / "semicolons.csv")
    assert found.texts == ["hello", "world, again"]
    assert found.names == ["semicolons.csv:?", "semicolons.csv:2"]
    assert found.left_out == {"more cells than the header has": 1}
    (tmp_path / "ids.jsonl").write_text('{"_id": "1"}\n{"_id": "2", "text": "x"}\n{"text": "\\ud800"}\n')
    found = read_texts(tmp_path / "ids.jsonl")
    assert (found.texts, found.left_out) == (["x"], {"missing field 'text'": 1, "invalid UTF-8": 1})
    folder = tmp_path / "folder"
    (folder / "sub.txt").mkdir(parents=True)
    (folder / "good.jsonl").write_text('["no object"]\n{"text": "good"}')
    (folder / "broken.parquet").write_text("x")
    (folder / "empty.csv").write_text("")
    (folder / "dead.jsonl").symlink_to(folder / "nowhere.jsonl")
    (folder / "broken.csv.gz").write_bytes(b"no archive")
    (folder / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"text": "lost"}' * 99)[:-20])
    found = read_texts(folder)
    assert (found.texts, found.left_out) == (["good"], {"in files that cannot be read": 3, "not a JSON object": 1})
    with pytest.raises(ValueError, match=r"broken\.parquet"):
        read_texts(folder / "broken.parquet")
    with pytest.raises(OSError, match=r"broken\.csv\.gz, after line 0: cannot read on"):
        read_texts(folder / "broken.csv.gz")
    (folder / "note.txt").write_text("which are the documents?")
    with pytest.raises(ValueError, match=r"both tables \(.*\) and plain texts \(note\.txt"):
        read_texts(folder)
    assert read_texts(folder, source_format="text").texts == ["which are the documents?"]


def test_the_field_of_the_text(tmp_path) -> None:
    """By default `text`, or the only one there is."""
    (tmp_path / "title.csv").write_text("title\nhello you\n")
    assert read_texts(tmp_path / "title.csv").texts == ["hello you"]
    (tmp_path / "strings.jsonl").write_text('"a"\n"b"\n')
    assert read_texts(tmp_path / "strings.jsonl").texts == ["a", "b"]
    (tmp_path / "urls.jsonl").write_text('{"url": "http://x"}\n{"text": "y", "id": 0}\n{"text": "z", "id": 1}\n')
    found = read_texts(tmp_path / "urls.jsonl")
    assert (found.names, found.texts) == (["urls.jsonl:0", "urls.jsonl:1"], ["y", "z"])
    assert found.left_out == {"missing field 'text'": 1}


def test_a_sample_is_drawn_while_reading(tmp_path) -> None:
    (tmp_path / "many.jsonl").write_text("\n".join(json.dumps({"text": f"t{number}"}) for number in range(500)))
    found = read_texts(tmp_path / "many.jsonl", sample=50)
    places = [int(text[1:]) for text in found.texts]
    assert found.available == 500
    assert places == sorted(set(places))
    assert len(places) == 50
    assert places != list(range(50))
    assert 150 < sum(places) / 50 < 350
