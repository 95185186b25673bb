"""One server for all tests that do not need one of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers import server as servers
from sentence_transformers import SentenceTransformer

import evenspan


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> str:
    return servers.saved_model(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def model(folder) -> SentenceTransformer:
    return evenspan.load(folder, device="cpu")


@pytest.fixture(scope="session")
def server(folder) -> Iterator[servers.Server]:
    with servers.serving(folder, "--max-bytes", "200000", "--max-texts", "100") as started:
        yield started
