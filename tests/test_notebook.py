"""The notebook of the first steps."""

from __future__ import annotations

import nbformat
from helpers.paths import ROOT
from nbclient import NotebookClient

NOTEBOOK = ROOT / "examples" / "first_steps.ipynb"


def test_notebook(tmp_path) -> None:
    """Runs from top to bottom, and is committed with its output."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert any(cell.get("outputs") for cell in notebook.cells if cell.cell_type == "code")
    NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(tmp_path)}}).execute()
