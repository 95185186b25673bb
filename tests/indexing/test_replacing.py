"""What serves while an index is replaced, what readers notice of it, and who may commit."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from helpers import tiny
from helpers.indexes import content, rows

import evenspan
from evenspan.indexing.columns import with_vectors
from evenspan.indexing.stores import locate_store
from evenspan.indexing.stores.base import ReplacedError
from evenspan.indexing.stores.folder import FolderStore
from evenspan.indexing.stores.parquet import ParquetStore
from evenspan.indexing.stores.postgres import PostgresStore

OTHER = "soft,strength=1.0,layers=all,basket_size=8"  # than the calibration that is the default


def others(count: int) -> list[dict[str, object]]:
    return [{"id": f"n{number}", "text": tiny.text(20, seed=500 + number)} for number in range(count)]


class Died(BaseException):
    """What no run can catch."""


def until(entries, last: int, then):
    """Rows of which some come, then something happens."""
    yield from entries[:last]
    then()
    yield from entries[last:]


def die() -> None:
    raise Died


@pytest.fixture
def dies(index, store, monkeypatch):
    """A run that dies after some rows, and tidies nothing up."""
    monkeypatch.setattr("evenspan.indexing.reading._ROWS", 10)
    for kind in (FolderStore, PostgresStore):
        monkeypatch.setattr(kind, "discard", lambda _: None)

    def run(entries, last, *arguments, **options) -> None:
        with pytest.raises(Died):
            index(until(entries, last, die), *arguments, **options)

    return run


def test_the_old_index_serves_until_the_new_one_is_whole(index, store, monkeypatch) -> None:
    monkeypatch.setattr("evenspan.indexing.reading._ROWS", 10)
    index(rows(20))
    before = content(**store)
    seen = []
    summary = index(until(others(60), 50, lambda: seen.append(content(**store))), OTHER, replace=True)
    assert seen == [before]
    assert summary.total == 60
    assert set(content(**store)) == {f"n{number}" for number in range(60)}
    assert index(others(60), OTHER).unchanged == 60


def test_death_while_an_index_is_replaced(index, store, dies) -> None:
    index(rows(20))
    before = content(**store)
    dies(others(60), 50, OTHER, replace=True)
    assert content(**store) == before
    assert index(rows(21)).unchanged == 20, "the old one can still be kept up"
    summary = index(others(40), OTHER, replace=True)
    assert summary.unchanged > 0, "the same command goes on"
    assert set(content(**store)) == {f"n{number}" for number in range(40)}, "and keeps nothing that is gone"
    assert index(rows(3), OTHER, replace=True).total == 3


def test_death_while_an_index_is_replaced_for_the_first_time(index, store, dies) -> None:
    dies(others(60), 50, replace=True)
    with pytest.raises((FileNotFoundError, ValueError), match=r"No index .* Build one with"):
        evenspan.open_index(**store)
    assert index(others(60), replace=True).total == 60


def test_what_an_unfinished_run_with_other_settings_left_is_not_used(index, store, dies) -> None:
    index(rows(5))
    dies(others(60), 50, OTHER, replace=True)
    summary = index(others(30), "none", replace=True)
    assert (summary.added, summary.unchanged, summary.total) == (30, 0, 30)
    with evenspan.open_index(**store) as opened:
        assert opened.settings.calibration == "none"


def test_death_between_the_swap_and_tidying_up(index, store, monkeypatch) -> None:
    if "table" in store:
        pytest.skip("one transaction in PostgreSQL")
    index(rows(20))
    monkeypatch.setattr("evenspan.indexing.stores.folder.sync_folder", lambda _: die())
    with pytest.raises(Died):
        index(others(20), OTHER, replace=True)
    monkeypatch.undo()
    found = content(**store)
    assert set(found) == {f"n{number}" for number in range(20)}
    index(others(20), OTHER)
    assert content(**store) == found
    folder = Path(store["store"].partition(":")[2])
    if store["store"].startswith("parquet"):  # whoever reads the files finds those of the new index alone
        assert sorted(pyarrow.parquet.read_table(folder)["id"].to_pylist()) == sorted(found)
    else:
        assert len(list(folder.glob("*.lance"))) == 1


def test_a_reader_notices_that_the_index_was_replaced(index, store, model) -> None:
    index(rows(20))
    with evenspan.open_index(**store, model=model) as opened:
        before = opened.search("w1 w2", 20)
        index(others(25), replace=True)
        assert len(opened) == 25
        assert {hit.id for hit in opened.search("w1 w2", 25)} == {f"n{number}" for number in range(25)}
        assert before
        index(rows(20), OTHER, replace=True)
        for reading in (
            lambda: opened.search("w1 w2"),
            lambda: opened.search_vectors(np.ones((1, 32), dtype=np.float32)),
            lambda: len(opened),
            lambda: opened.columns,
            lambda: opened.delete(["d1"]),
        ):
            with pytest.raises(ReplacedError, match="open it again"):
                reading()


def test_an_index_that_is_replaced_during_a_search(index, store, model) -> None:
    """What was read may be of both; the search is repeated, or refused."""
    index(rows(20))
    with evenspan.open_index(**store, model=model) as opened:
        nearest = opened._store.nearest
        opened._store.nearest = lambda *asked: (index(others(25), replace=True), nearest(*asked))[1]
        assert {hit.id for hit in opened.search("w1 w2", 25)} == {f"n{number}" for number in range(25)}
        nearest = opened._store.nearest
        opened._store.nearest = lambda *asked: (index(rows(20), OTHER, replace=True), nearest(*asked))[1]
        with pytest.raises(ReplacedError, match="open it again"):
            opened.search("w1 w2")


def test_a_run_that_has_lost_its_lock_commits_nothing_more(index, store, monkeypatch) -> None:
    monkeypatch.setattr("evenspan.indexing.reading._ROWS", 10)
    followed = threading.Event()  # who has lost a connection looks again after that
    if "table" in store:
        monkeypatch.setattr("evenspan.indexing.stores.postgres_sql.time.sleep", lambda _: followed.wait(60))

    def follow() -> None:
        take_the_lock_away(store)
        index(others(20))
        followed.set()

    with pytest.raises(RuntimeError, match="Another run has started writing"):
        index(until(rows(60), 40, follow))
    found = content(**store)
    assert {f"n{number}" for number in range(20)} <= set(found)
    assert index(rows(60)).total == 80


def test_a_run_that_has_lost_its_lock_replaces_nothing(index, store, monkeypatch) -> None:
    monkeypatch.setattr("evenspan.indexing.reading._ROWS", 10)
    followed = threading.Event()  # who has lost a connection looks again after that
    if "table" in store:
        monkeypatch.setattr("evenspan.indexing.stores.postgres_sql.time.sleep", lambda _: followed.wait(60))
    index(rows(20))

    def follow() -> None:
        take_the_lock_away(store)
        index(rows(30))
        followed.set()

    with pytest.raises(RuntimeError, match="Another run has started writing"):
        index(until(others(60), 50, follow), OTHER, replace=True)
    assert set(content(**store)) == {f"d{number}" for number in range(30)}


def test_a_file_that_whoever_followed_has_removed(index, store, monkeypatch) -> None:
    """It was written, and had no name yet: the run says what happened, and does not touch the files of the other."""
    if not store["store"].startswith("parquet"):
        pytest.skip("in the other stores nothing is without a name")
    written = pyarrow.parquet.write_table
    with monkeypatch.context() as patch:

        def disturbed(*arguments, **options) -> None:
            written(*arguments, **options)
            patch.undo()
            take_the_lock_away(store)
            index(others(20), OTHER, replace=True)

        patch.setattr(pyarrow.parquet, "write_table", disturbed)
        with pytest.raises(RuntimeError, match="Another run has started writing"):
            index(rows(20), replace=True)
    assert set(content(**store)) == {f"n{number}" for number in range(20)}


def take_the_lock_away(store) -> None:
    if "table" not in store:
        for file in Path(store["store"].partition(":")[2]).glob("_lock.sqlite*"):
            file.unlink()
        return
    import psycopg

    with psycopg.connect(store["store"], autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1"
        )


def shard_of(count: int):
    digests = pyarrow.array([b"0" * 16] * count, pyarrow.binary(16))
    texts = pyarrow.array(["w1"] * count, pyarrow.large_string())
    table = pyarrow.table({"id": [f"x{number}" for number in range(count)], "text": texts, "digest": digests})
    vectors = np.random.default_rng(0).standard_normal((count, 32), dtype=np.float32)
    return with_vectors(table, vectors), [(f"x{number}", b"0" * 16) for number in range(count)]


def test_columns_stay_when_an_earlier_shard_is_saved_later(index, store) -> None:
    """On a GPU a shard whose vectors are kept may be saved before one that was full before it."""
    index([{"id": "1", "text": "w1"}])
    opened = locate_store(store["store"], write=True, table=store.get("table"))()
    before = opened.columns()
    opened.set_columns({**before, "colour": "str"})
    opened.set_columns(before)
    assert opened.columns() == {**before, "colour": "str"}
    opened.close()


def test_two_writers_of_one_shard(index, store, model) -> None:
    """One was given up and is still alive: before the shard is committed, and after."""
    index(rows(20))
    table, names = shard_of(12)
    opened = locate_store(store["store"], write=True, table=store.get("table"))()
    writer, number = opened.writer(), opened.reserve()
    writer.write(number, table)
    opened.commit(writer.write(number, table), names)
    assert len(content(**store)) == 32
    opened.finish()
    if "table" not in store:  # in PostgreSQL the end of a run is not the end of its token
        writer.write(number, table)
    opened.close()
    assert len(content(**store)) == 32
    with evenspan.open_index(**store, model=model) as reader:
        assert len({hit.id for hit in reader.search("w1", 40)}) == 32
    assert index(rows(21)).total == 33
    assert len(content(**store)) == 33


def test_a_writer_of_a_run_that_was_followed_writes_nothing(index, store) -> None:
    if "table" not in store:
        pytest.skip("only in PostgreSQL does a writer commit")
    index(rows(20))
    opened = locate_store(store["store"], write=True, table=store["table"])()
    writer, number = opened.writer(), opened.reserve()
    opened.close()
    index(rows(21))
    with pytest.raises(RuntimeError, match="Another run has started writing"):
        writer.write(number, shard_of(5)[0])
    assert len(content(**store)) == 21


def test_readers_of_parquet_files_survive_an_update(index, model, tmp_path, monkeypatch) -> None:
    def update() -> None:
        evenspan.index(model, changed, place, progress=False)

    place = f"parquet:{tmp_path / 'index'}"
    evenspan.index(model, rows(40), place, progress=False)
    changed = [{**row, "text": row["text"] + " w7"} for row in rows(20)] + rows(40)[20:]
    searched = ParquetStore._nearest

    def disturbed(*arguments):
        monkeypatch.undo()
        update()
        return searched(*arguments)

    with evenspan.open_index(place, model) as opened:
        monkeypatch.setattr(ParquetStore, "_nearest", disturbed)
        found = opened.search("w1 w7", 40)
        assert len(found) == 40
        assert sum(hit.text.endswith(" w7") for hit in found) == 20
        changed = rows(40)
        reading = opened.rows()
        first = next(reading)
        update()
        assert len({first.id, *(hit.id for hit in reading)}) == 40


def test_an_index_of_a_newer_format_is_refused(index, store, monkeypatch) -> None:
    for module in ("evenspan.indexing.manifest", "evenspan.indexing.stores.postgres"):
        monkeypatch.setattr(f"{module}.FORMAT", 99)
    index(rows(5))
    monkeypatch.undo()
    for use in (lambda: evenspan.open_index(**store), lambda: index(rows(5))):
        with pytest.raises(ValueError, match="newer"):
            use()


def test_an_index_of_the_first_format_gets_what_it_lacks(index, tmp_path, model) -> None:
    place = tmp_path / "old"
    evenspan.index(model, rows(20), f"parquet:{place}", progress=False)
    with sqlite3.connect(place / "_manifest.sqlite") as database:
        database.execute("DROP INDEX documents_key")
        database.execute("DELETE FROM settings WHERE name IN ('generation', 'format', 'run')")
    assert len(content(f"parquet:{place}")) == 20, "it is read as it is"
    assert evenspan.index(model, rows(20), f"parquet:{place}", progress=False).unchanged == 20
    with sqlite3.connect(place / "_manifest.sqlite") as database:
        assert database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'documents_key'").fetchone() == (1,)
        assert database.execute("SELECT value FROM settings WHERE name = 'format'").fetchone() == ("2",)
