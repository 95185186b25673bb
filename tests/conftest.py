"""Shared fixtures."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

# No test may reach for the network; must be set before huggingface_hub is imported.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# What `datasets` makes of the local copies is not left behind.
os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp(prefix="evenspan-tests-")
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

import pytest
import transformers.utils.logging
from helpers import tiny
from sentence_transformers import SentenceTransformer

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()


@pytest.fixture
def cls_model(tmp_path: Path) -> SentenceTransformer:
    return tiny.sentence_transformer("xlm-roberta-cls", tmp_path / "cls", prompts={"query": "w1 w2 w3 "})


@pytest.fixture
def last_model(tmp_path: Path) -> SentenceTransformer:
    return tiny.sentence_transformer("qwen3-lasttoken", tmp_path / "last")


@pytest.fixture
def report(record_property):
    """Remember a figure; all of them are printed at the end of the run."""
    return lambda line: record_property("figure", line)


def pytest_terminal_summary(terminalreporter) -> None:
    figures = [
        value
        for test in terminalreporter.getreports("passed")
        for name, value in test.user_properties
        if name == "figure"
    ]
    if figures:
        terminalreporter.section("figures")
        for line in largest(figures):
            terminalreporter.write_line(line)


def largest(figures: list[str]) -> list[str]:
    """The largest value of each name, in the order in which the names came."""
    values: dict[str, str] = {}
    for name, _, value in (figure.rpartition(": ") for figure in figures):
        values[name] = max(value, values.get(name, value), key=float)
    return [f"{name}: {value}" for name, value in values.items()]


def pytest_unconfigure() -> None:
    shutil.rmtree(os.environ["HF_DATASETS_CACHE"], ignore_errors=True)
