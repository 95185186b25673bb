"""The notebooks run from top to bottom, and are committed with their output."""

from __future__ import annotations

import re

import nbformat
import pytest
from helpers.paths import ROOT
from nbclient import NotebookClient

EXAMPLES = ROOT / "examples"
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook(name, tmp_path) -> None:
    """With smaller benchmarks than those whose output is committed: this is about the code."""
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    assert any(cell.get("outputs") for cell in notebook.cells if cell.cell_type == "code")
    for cell in notebook.cells:
        cell.source = re.sub(r"documents=\d+, tokens=600", "documents=12, tokens=600", cell.source)
    NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(tmp_path)}}).execute()


def test_all_are_listed() -> None:
    assert re.findall(r"\((\w+\.ipynb)\)", (EXAMPLES / "README.md").read_text("utf-8")) == [
        "first_steps.ipynb", "your_corpus.ipynb", "chunks.ipynb", "add_a_variant.ipynb",
    ]  # fmt: skip
    assert len(NOTEBOOKS) == 4
