"""What only PostgreSQL can get wrong."""

from __future__ import annotations

import itertools

import pytest
from helpers.indexes import content, rows

import evenspan
from evenspan.indexing.stores import locate_store

psycopg = pytest.importorskip("psycopg")
_tables = itertools.count()


@pytest.fixture
def place(server) -> dict[str, str]:
    return {"store": server.get_uri(), "table": f"only{next(_tables)}"}


@pytest.fixture
def administrator(server):
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def run(model, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def index(entries, **options):
        return evenspan.index(model, entries, **{**place, "progress": False, **options})

    return index


def test_a_relation_with_the_name_of_an_index(run, place, administrator) -> None:
    administrator.execute(f'CREATE TABLE "{place["table"]}_hnsw" (name text)')
    run(rows(20))
    indexes = administrator.execute("SELECT indexdef FROM pg_indexes WHERE tablename = %s", (place["table"],))
    assert any("hnsw" in made for (made,) in indexes)


def test_a_column_with_a_percent_sign(run, place, model, administrator) -> None:
    run(rows(20))
    administrator.execute(f"""ALTER TABLE {place["table"]} ADD COLUMN "a%b" text DEFAULT 'x'""")
    with evenspan.open_index(**place, model=model) as opened:
        assert len(opened.search("w1", 20, """"a%b" = 'x'""")) == 20
        assert opened.search("w1", 1)[0].metadata["a%b"] == "x"
    assert run(rows(21)).total == 21
    assert len(content(**place)) == 21


def test_a_role_that_may_make_nothing(run, place, administrator) -> None:
    run(rows(20))
    administrator.execute("DROP ROLE IF EXISTS limited")
    administrator.execute("CREATE ROLE limited LOGIN")
    administrator.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    administrator.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO limited")
    limited = place["store"].replace("//postgres:", "//limited:", 1)
    assert run(rows(30), store=limited).total == 30
    with pytest.raises(RuntimeError, match="permission denied for schema"):
        run(rows(30), store=limited, replace=True)
    assert len(content(**place)) == 30


def test_a_refusal_leaves_nothing(run, place, administrator) -> None:
    administrator.execute(f"CREATE TABLE {place['table']} (name text)")
    for replace in (False, True):
        with pytest.raises(ValueError, match="that is not an index"):
            run(rows(3), replace=replace)
    like = (f"{place['table']}%",)
    assert administrator.execute("SELECT relname FROM pg_class WHERE relname LIKE %s", like).fetchall() == [
        (place["table"],)
    ]


def test_a_statement_that_takes_too_long_is_not_a_lost_server(run, place, administrator, monkeypatch) -> None:
    def waited(_) -> None:
        raise AssertionError("it was tried again")

    run(rows(20))
    monkeypatch.setattr("evenspan.indexing.stores.postgres_sql.time.sleep", waited)
    with administrator.transaction():
        administrator.execute(f"LOCK TABLE {place['table']} IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(RuntimeError, match="statement timeout"):
            run(rows(20), store=f"{place['store']}&options=-c%20statement_timeout%3D200")


def test_a_filter_that_the_graph_does_not_reach(run, place, model, monkeypatch) -> None:
    """As where pgvector gives up after so many rows: the server is told to do so at once."""
    monkeypatch.setattr("evenspan.indexing.stores.postgres_search.SCANNED", 0)
    run([{**row, "number": number} for number, row in enumerate(rows(600))])
    hasty = f"{place['store']}&options=-c%20hnsw.max_scan_tuples%3D1%20-c%20enable_seqscan%3Doff"
    with evenspan.open_index(hasty, model, table=place["table"]) as opened:
        for where, count in (("number in (7, 300, 599)", 3), ("number < 100", 50), (None, 600)):
            assert len(opened.search("w1 w2", 50 if count == 50 else 600, where)) == count


@pytest.mark.parametrize(
    "address",
    [
        "postgresql:/u:SECRET@localhost/db",
        "host=localhost password=SECRET",
        "postgresql://u:SEC@RET@localhost/db",
        "postgresql://u:SEC/RET@localhost/db",
        "postgresql://u:SECRET/db",
        "mysql:u:SECRET://x",
    ],
)
def test_no_part_of_a_password_is_shown(address, model, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (lambda: evenspan.index(model, rows(1), address, progress=False), lambda: locate_store(address)()):
        with pytest.raises(ValueError, match=r"not a PostgreSQL address|Unsupported store") as raised:
            use()
        assert "SEC" not in str(raised.value)
        assert "RET" not in str(raised.value)
    assert not list(tmp_path.iterdir())
