"""The notebooks of `examples/python` run from the first cell to the last."""

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="nbclient is not there, so the notebooks were not run")
nbformat = pytest.importorskip("nbformat")
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "python"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def test_notebooks_are_there():
    assert len(NOTEBOOKS) >= 4


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_runs(name, tmp_path):
    if name == "torch_compile.ipynb":
        pytest.importorskip("torch", reason="PyTorch is not there, so the notebook about it was not run")
    notebook = nbformat.read(FOLDER / name, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "notebooks are kept without outputs"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
