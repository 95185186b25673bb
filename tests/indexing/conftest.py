"""A tiny model, every store, and how to index into it."""

from __future__ import annotations

import itertools

import pytest
from helpers import indexes
from helpers.indexes import STORES

import evenspan
from evenspan.indexing.plan import ShardSize

SMALL = ShardSize(documents=16)
_tables = itertools.count()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory) -> str:
    return indexes.saved_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def model(model_folder):
    return evenspan.load(model_folder, device="cpu")


@pytest.fixture(scope="session")
def server():
    with indexes.postgres_server() as started:
        yield started


@pytest.fixture(params=STORES)
def store(request, tmp_path) -> dict[str, str]:
    """Where an index goes: the arguments of `index` and `open_index` that say so."""
    if request.param != "postgres":
        return {"store": f"{request.param}:{tmp_path / 'index'}"}
    return {"store": request.getfixturevalue("server").get_uri(), "table": f"t{next(_tables)}"}


@pytest.fixture
def index(model_folder, store, tmp_path, monkeypatch):
    """`evenspan.index` into the store, without a progress bar."""
    monkeypatch.chdir(tmp_path)

    def run(source, *args, **options):
        return evenspan.index(
            options.pop("model", model_folder), source, store["store"], *args,
            **{"shard": SMALL, "progress": False, "table": store.get("table"), **options},
        )  # fmt: skip

    return run
