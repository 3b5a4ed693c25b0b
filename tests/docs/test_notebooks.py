"""The notebooks run from top to bottom, and what they store is what they give."""

from __future__ import annotations

import re
import warnings

import pytest
from doc_blocks import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SMALL = 100_000  # bytes; a notebook with more holds pictures or data that belong elsewhere


def texts(notebook) -> list[list[str]]:
    """Return the text of every output, numbers masked: their last digits belong to the machine."""
    cells = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    found = [
        [o.get("text") or o.get("data", {}).get("text/plain", o.output_type) for o in outputs] for outputs in cells
    ]
    return [[re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "#", text) for text in outputs] for outputs in found]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook(path):
    nbformat = pytest.importorskip("nbformat", reason="the extra `dev` is not installed")
    nbclient = pytest.importorskip("nbclient", reason="the extra `dev` is not installed")
    assert path.stat().st_size < SMALL
    stored = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    client = nbclient.NotebookClient(
        fresh, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # the kernel's own libraries warn; the notebook's warnings would be outputs
        client.execute()
    counts = [cell.execution_count for cell in stored.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert texts(fresh) == texts(stored)
    kinds = {o.output_type for cell in fresh.cells if cell.cell_type == "code" for o in cell.outputs}
    assert kinds == {"execute_result"}


def test_there_are_notebooks():
    assert NOTEBOOKS
