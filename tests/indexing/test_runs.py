"""Runs one after another into the same store: what they add, keep, and refuse."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pyarrow
import pytest
import torch
from helpers import indexes, tiny
from helpers.indexes import content, rows
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

import evenspan
from evenspan.cli import main
from evenspan.indexing.plan import ShardSize

SMALL = ShardSize(documents=16)


def test_the_settings_are_stored_with_the_index(index, store, model_folder) -> None:
    index(rows(5), "hard,strength=1.0")
    with evenspan.open_index(**store) as opened:
        assert opened.settings.calibration == "hard,strength=1.0,layers=half,basket_size=128,self_mass=0.3"
        assert opened.settings.model == model_folder
        assert opened.settings.query_prompt == "w1 w2 "
        assert opened.columns == {"year": "int", "lang": "str"}
        assert len(opened) == 5


def test_a_second_run_adds_and_replaces(index, store) -> None:
    index(rows(40))
    before = content(**store)
    changed = rows(50)
    changed[3]["text"] = tiny.text(9, seed=77)
    changed[20]["year"] = 1
    del changed[21]["lang"]
    summary = index(changed)
    assert (summary.added, summary.replaced, summary.unchanged, summary.total) == (10, 1, 37, 50)
    assert summary.updated == 2, "metadata alone: not encoded again"
    after = content(**store)
    assert after["d3"][0] == changed[3]["text"]
    assert after["d3"][2] != before["d3"][2]
    assert after["d20"][1]["year"] == 1
    assert "lang" not in after["d21"][1]
    assert all(after[name] == before[name] for name in before if name not in ("d3", "d20", "d21"))
    assert index(changed).unchanged == 50


def test_outdated_rows_are_not_left_in_parquet_files(model, tmp_path) -> None:
    for seed in (0, 1):
        entries = [{**one, "text": tiny.text(5, seed=seed)} for one in rows(40)[:20]] + rows(40)[20:]
        evenspan.index(model, entries, f"parquet:{tmp_path / 'index'}", shard=SMALL, progress=False)
    table = pyarrow.parquet.read_table(tmp_path / "index")
    assert sorted(table["id"].to_pylist()) == sorted(one["id"] for one in rows(40))


def test_another_model_or_calibration_is_refused_side_by_side(index, store, model_folder) -> None:
    index(rows(5))
    with pytest.raises(ValueError, match="made with other settings") as refused:
        index(rows(5), "soft,strength=1.0")
    assert "soft,strength=0.5,layers=half,basket_size=128  soft,strength=1.0,layers=half,basket_size=128" in str(
        refused.value
    )
    with pytest.raises(ValueError, match="document_prompt"):
        index(rows(5), document_prompt="w9 ")
    other = evenspan.load(model_folder, device="cpu")
    with torch.no_grad():
        next(other.parameters()).add_(0.1)
    with pytest.raises(ValueError, match="weights"):
        index(rows(5), model=other)
    assert len(content(**store)) == 5
    assert index(rows(3), "none", replace=True).total == 3
    with evenspan.open_index(**store) as opened:
        assert opened.settings.calibration == "none"


def test_two_runs_at_once_are_refused(index, store) -> None:
    def meddling():
        yield from rows(3)
        with pytest.raises(RuntimeError, match="Another run is writing"):
            index(rows(3))

    assert index(meddling()).total == 3


def test_a_folder_with_other_files_is_left_alone(model, tmp_path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    for kind in ("lance", "parquet"):
        with pytest.raises(ValueError, match=r"contains other files \(mine.txt\)"):
            evenspan.index(model, rows(3), f"{kind}:{tmp_path}", replace=True, progress=False)
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_the_command_line_indexes_and_searches(model_folder, tmp_path, capsys, monkeypatch) -> None:
    text = "".join(json.dumps({"key": one["id"], "body": one["text"], "year": one["year"]}) + "\n" for one in rows(30))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((text + "oops\n").encode())))
    store = str(tmp_path / "index")
    command = ["index", model_folder, "-", store, "--field", "body", "--id", "key", "--batch-tokens", "500", "--json"]
    assert main([*command, "--calibration", "soft,strength=1.0"]) == 0
    printed = capsys.readouterr()
    summary = json.loads(printed.out)
    assert (summary["total"], summary["rejected"]) == (30, {"no valid JSON": 1})
    assert printed.err == "", "no progress bar where standard error is no terminal"
    assert main(["search", store, "w1 w2", "-k", "2", "--where", "year < 2010"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("  1. ")
    assert len(lines) == 4
    assert main(["search", store, "w1", "--where", "1=1"]) == 2
    assert "evenspan: Cannot read the filter" in capsys.readouterr().err
    assert main(["index", model_folder, str(tmp_path / "nothing"), store]) == 2
    assert "There is no file or folder" in capsys.readouterr().err
    assert main(["search", str(tmp_path / "nowhere"), "w1"]) == 2
    assert "No index found" in capsys.readouterr().err


def test_a_model_with_a_calibration_of_its_own_uses_it(model_folder, tmp_path) -> None:
    model = evenspan.calibrate(evenspan.load(model_folder, device="cpu"), evenspan.Calibration("uniform"))
    evenspan.index(model, rows(3), tmp_path / "index", progress=False)
    with evenspan.open_index(tmp_path / "index", model) as opened:
        assert opened.settings.calibration.startswith("uniform")
        np.testing.assert_array_equal(
            opened.encode(["w5 w6"]), evenspan.restore(model).encode_query(["w5 w6"], normalize_embeddings=True)
        )


def test_wrong_arguments_say_what_is_right(model, tmp_path) -> None:
    for options, words in (
        ({"engine": "spark"}, "engine must be one of local, ray"),
        ({"address": "auto"}, "are for the engine 'ray'"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1, not 0"),
        ({"max_rejects": 2}, "must lie in"),
        ({"source_format": "xml"}, "Available: jsonl, csv, tsv, parquet, text"),
        ({"field": "id"}, "cannot both be read"),
        ({"engine": "ray"}, "pass its folder or its name"),
        ({"table": "x"}, "is for PostgreSQL"),
    ):
        with pytest.raises(ValueError, match=words):
            evenspan.index(model, rows(2), tmp_path / "index", progress=False, **options)
    with pytest.raises(ValueError, match="Unsupported store"):
        evenspan.index(model, rows(2), "redis://x", progress=False)


def test_the_same_weights_pooled_otherwise_are_another_model(model, tmp_path) -> None:
    evenspan.index(model, indexes.rows(5), tmp_path / "index", progress=False)
    other = SentenceTransformer(modules=[model[0], Pooling(32, "lasttoken"), *list(model)[2:]], prompts=model.prompts)
    with pytest.raises(ValueError, match="made with other settings"):
        evenspan.index(other, indexes.rows(5), tmp_path / "index", "none", progress=False)


def test_a_table_of_somebody_else_is_not_replaced(model, server) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("CREATE TABLE users (name text)")
    for replace in (False, True):
        with pytest.raises(ValueError, match="that is not an index"):
            evenspan.index(model, indexes.rows(3), server.get_uri(), table="users", replace=replace, progress=False)


@pytest.mark.parametrize("address", ["mysql://u:SECRET@host/db", "postgresql://u:SEC%RET@localhost/db"])
def test_passwords_are_not_shown(address, model) -> None:
    with pytest.raises(ValueError, match=r"Unsupported store mysql|not a PostgreSQL address") as raised:
        evenspan.index(model, indexes.rows(3), address, progress=False)
    assert "SEC" not in str(raised.value)


def test_a_damaged_manifest_can_be_replaced(model, tmp_path) -> None:
    evenspan.index(model, indexes.rows(5), tmp_path / "index", progress=False)
    (tmp_path / "index" / "_manifest.sqlite").write_bytes(b"damaged" * 1000)
    with pytest.raises(RuntimeError, match="--replace"):
        evenspan.index(model, indexes.rows(5), tmp_path / "index", progress=False)
    assert evenspan.index(model, indexes.rows(5), tmp_path / "index", replace=True, progress=False).total == 5


def test_neither_the_source_nor_an_index_in_it_is_harmed(model, tmp_path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    source = indexes.write_jsonl(folder / "rows.jsonl", indexes.rows(6))
    with pytest.raises(ValueError, match="part of the source"):
        evenspan.index(model, source, tmp_path / "index", rejects=source, progress=False)
    assert source.exists()
    for expected in (6, 0):
        summary = evenspan.index(model, folder, f"parquet:{folder / 'index'}", progress=False)
        assert (summary.added, summary.rejected) == (expected, {})


def test_another_query_prompt_is_not_ignored(model, tmp_path) -> None:
    evenspan.index(model, indexes.rows(3), tmp_path / "index", query_prompt="w5 ", progress=False)
    with pytest.raises(ValueError, match=r"'w5 ', not 'w7 '"):
        evenspan.index(model, indexes.rows(3), tmp_path / "index", query_prompt="w7 ", progress=False)
    assert evenspan.index(model, indexes.rows(3), tmp_path / "index", progress=False).unchanged == 3
