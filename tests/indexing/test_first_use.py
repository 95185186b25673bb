"""What a first use trips over: fields, empty sources, missing extras, and what a failed run leaves behind."""

from __future__ import annotations

import gzip
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import calls, copies
from helpers.indexes import content, rows, write_jsonl

import evenspan
import evenspan.errors
from evenspan.cli import main
from evenspan.errors import MissingExtraError

NO_MODEL = "there/is/no/such/model"  # what is refused with it is refused before a model is loaded


def test_ids_may_be_called_as_in_beir(model, tmp_path) -> None:
    corpus = copies.directory(tmp_path / "beir", documents=5) / "corpus.jsonl"
    (tmp_path / "corpus.jsonl.gz").write_bytes(gzip.compress(corpus.read_bytes()))
    for number, source in enumerate((corpus, tmp_path / "corpus.jsonl.gz")):
        store = f"parquet:{tmp_path / f'index{number}'}"
        assert evenspan.index(model, source, store, progress=False).added == 5
        assert {name: metadata for name, (_, metadata, _) in content(store).items()} == {
            f"d{place}": {"title": f"w{place}"} for place in range(5)
        }
        assert evenspan.index(model, source, store, progress=False, id_field="_id").unchanged == 5


def test_id_comes_before_the_other_name(model, tmp_path) -> None:
    entries = [{"_id": "x", "text": "w9"}, *({**row, "_id": "x"} for row in rows(3))]
    store = f"parquet:{tmp_path / 'index'}"
    summary = evenspan.index(model, entries, store, progress=False, max_rejects=0.5)
    assert summary.rejected == {"missing field 'id'": 1}
    assert content(store)["d1"][1] == {"year": 2001, "lang": "fr", "metadata__id": "x"}


@pytest.mark.parametrize(
    ("entries", "options", "says"),
    [
        ([{"name": "a", "text": "w1"}], {}, r"no field 'id' in rows: .* 'name', 'text'. .* with --id, .* --id @line"),
        ([{"_id": "a", "text": "w1"}], {"id_field": "id"}, "no field 'id' in rows: .* with --id"),
        ([{"id": "a", "body": "w1"}], {}, "no field 'text' in rows: the fields are 'id', 'body'. .* with --field"),
        ([{"id": "a", "text": "w1"}], {"field": "body"}, "no field 'body' in rows: .* with --field"),
        ([{"text": "w1"}, {"title": "w2"}], {}, "the fields are 'text', 'title'"),
    ],
)
def test_missing_fields_are_named_before_a_model_is_loaded(entries, options, says, tmp_path) -> None:
    with pytest.raises(ValueError, match=says):
        evenspan.index(NO_MODEL, entries, tmp_path / "index", progress=False, **options)
    assert not (tmp_path / "index").exists()


def test_lines_need_no_ids(model, tmp_path) -> None:
    (tmp_path / "corpus.jsonl").write_text('"w1 w2"\n"w3"\n')
    with pytest.raises(ValueError, match="--id @line"):
        evenspan.index(NO_MODEL, tmp_path / "corpus.jsonl", tmp_path / "index", progress=False)
    summary = evenspan.index(model, tmp_path / "corpus.jsonl", tmp_path / "index", progress=False, id_field="@line")
    assert summary.added == 2


@pytest.mark.parametrize(
    ("name", "text"), [("a.jsonl", ""), ("a.jsonl", "\n\n"), ("a.csv", "id,text\n"), ("a.csv", "")]
)
def test_an_empty_file_is_an_error(name, text, model, tmp_path, capsys) -> None:
    (tmp_path / name).write_text(text)
    store = f"parquet:{tmp_path / 'new' / 'index'}"
    with pytest.raises(ValueError, match=rf"There are no documents in .*{name}"):
        evenspan.index(NO_MODEL, tmp_path / name, store, progress=False)
    assert main(["index", NO_MODEL, str(tmp_path / name), store]) == 2
    assert "There are no documents in" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    evenspan.index(model, rows(3), store, progress=False)
    with pytest.raises(ValueError, match="There are no documents in"):
        evenspan.index(model, tmp_path / name, store, progress=False, replace=True)
    assert len(content(store)) == 3


def test_a_source_without_a_usable_row_is_an_error(model, tmp_path) -> None:
    (tmp_path / "bad.jsonl").write_text("no json\n")
    for source in (tmp_path / "bad.jsonl", [{"id": "a", "text": ""}]):
        with pytest.raises(ValueError, match=r"There are no documents in .*: 1 of 1 rows could not be used"):
            evenspan.index(model, source, tmp_path / "index", max_rejects=1.0, progress=False)
        assert (tmp_path / "index" / "_rejects.jsonl").exists(), "it says why"
    assert evenspan.index(model, rows(3), tmp_path / "index", progress=False).added == 3
    assert evenspan.index(model, rows(3), tmp_path / "index", progress=False).unchanged == 3


@pytest.mark.parametrize(
    ("missing", "options", "says"),
    [
        ("lancedb", {}, "LanceDB needs lancedb: pip install 'evenspan[index]'"),
        ("pyarrow", {"store": "parquet:x"}, "needs pyarrow: pip install 'evenspan[index]'"),
        ("psycopg", {"store": "postgresql://x"}, "PostgreSQL needs psycopg: pip install 'evenspan[index]'"),
        ("pgvector", {"store": "postgresql://x"}, "PostgreSQL needs pgvector: pip install 'evenspan[index]'"),
        ("datasets", {"source": "hf:a/b"}, "needs datasets: pip install 'evenspan[index]'"),
        ("ray", {"engine": "ray"}, "needs ray: pip install 'evenspan[ray]'"),
    ],
)
def test_a_missing_extra_is_named_before_any_work(missing, options, says, tmp_path, monkeypatch) -> None:
    found = evenspan.errors.find_spec
    monkeypatch.setattr(evenspan.errors, "find_spec", lambda name: None if name == missing else found(name))
    arguments = {"source": rows(1), "store": tmp_path / "index", **options}
    with pytest.raises(MissingExtraError) as raised:
        evenspan.index(NO_MODEL, **arguments, progress=False)
    assert says in str(raised.value)
    assert not (tmp_path / "index").exists()
    if missing not in ("datasets", "ray"):
        with pytest.raises(MissingExtraError, match="pip install"):
            evenspan.open_index(arguments["store"])


def test_a_base_install_can_import_what_it_cannot_do() -> None:
    program = """
import sys
import sentence_transformers  # which imports what of this there is
for name in ("pyarrow", "lancedb", "psycopg", "pgvector", "datasets", "ray"):
    sys.modules[name] = None
import evenspan
from evenspan.errors import MissingExtraError
from evenspan.indexing.plan import ShardSize
for call in (lambda: evenspan.index("m", [{"id": "a", "text": "b"}], "x"), lambda: evenspan.open_index("x")):
    try:
        call()
    except MissingExtraError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["LanceDB needs lancedb, pyarrow: pip install 'evenspan[index]'"] * 2, (
        done.stderr
    )


class Broken:
    """Some rows, and then an error."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self):
        yield from rows(self.count)
        raise OSError("gone")


def test_a_failed_run_leaves_no_empty_folder(model, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "deep" / "index"

    def refused(error, *arguments, **options) -> None:
        for kind in ("lance", "parquet"):
            with pytest.raises(error):
                evenspan.index(*arguments, f"{kind}:{folder}", progress=False, **options)
            assert not folder.parent.exists()

    refused((OSError, ValueError), NO_MODEL, rows(3))
    refused(ValueError, model, rows(3), calibration="soft,strength=7")
    refused(ValueError, model, rows(3), calibration="soft,layers=99")
    refused(ValueError, model, [])
    refused(ValueError, model, rows(3), metadata=["lang:text"])
    refused(ValueError, model, write_jsonl(tmp_path / "a.jsonl", rows(3)), rejects=tmp_path / "a.jsonl")
    refused(OSError, model, Broken(1))
    with monkeypatch.context() as patch:
        calls.watch(patch, most=0)
        refused(torch.OutOfMemoryError, model, rows(1))
    folder.mkdir(parents=True)
    with pytest.raises(OSError, match="gone"):
        evenspan.index(model, Broken(1), folder, progress=False)
    assert folder.exists(), "it was there before"


def test_what_was_committed_stays_after_a_failure(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("evenspan.indexing.reading._ROWS", 10)
    with pytest.raises(OSError, match="gone"):
        evenspan.index(
            model, Broken(40), tmp_path / "index", progress=False, shard=evenspan.indexing.plan.ShardSize(10)
        )
    assert len(content(str(tmp_path / "index"))) >= 10


def test_more_results_than_any_store_has(model, tmp_path, capsys) -> None:
    evenspan.index(model, rows(3), tmp_path / "index", progress=False)
    with evenspan.open_index(tmp_path / "index") as index:
        assert len(index.search("w1", k=1_000_000)) == 3
        with pytest.raises(ValueError, match="k must be a whole number from 1 to 1,000,000, not 99999"):
            index.search("w1", k=int("9" * 20))
    assert main(["search", str(tmp_path / "index"), "w1", "-k", "9" * 20]) == 2
    assert "-k must be a whole number between 1 and 1,000,000" in capsys.readouterr().err


def test_parameters_have_names() -> None:
    kinds = {parameter.kind for parameter in inspect.signature(evenspan.index).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    with pytest.raises(TypeError, match="unexpected keyword argument 'feild'"):
        evenspan.index(NO_MODEL, rows(1), Path("index"), feild="text")


def test_a_folder_in_beir_layout_is_indexed_without_its_queries(model, tmp_path) -> None:
    data = copies.directory(tmp_path / "data", documents=12, words=20)
    summary = evenspan.index(model, data, f"parquet:{tmp_path / 'index'}", progress=False)
    assert (summary.total, summary.skipped) == (12, 0)


def test_a_calibration_of_another_type_is_refused(model, tmp_path) -> None:
    with pytest.raises(TypeError, match="its string or 'none', not False"):
        evenspan.index(model, rows(3), tmp_path / "index", calibration=False, progress=False)
    assert not (tmp_path / "index").exists()
