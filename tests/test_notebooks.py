"""The stored notebook is its source, executed: same cells, no error, no path of a machine, no stray noise."""
import json
from pathlib import Path

import pytest

jupytext = pytest.importorskip("jupytext")
NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
NAMES = sorted(p.stem for p in (NOTEBOOKS / "src").glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_the_stored_notebook_has_the_cells_of_its_source(name):
    source = jupytext.read(NOTEBOOKS / "src" / f"{name}.py")
    stored = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
    assert [(c.cell_type, c.source) for c in source.cells] == [(c["cell_type"], "".join(c["source"])) for c in stored["cells"]]


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_there_and_clean(name):
    text = (NOTEBOOKS / f"{name}.ipynb").read_text()
    stored = json.loads(text)
    code = [c for c in stored["cells"] if c["cell_type"] == "code"]
    assert all(c["execution_count"] for c in code)
    assert not any(o["output_type"] == "error" for c in code for o in c["outputs"])
    assert sum(bool(c["outputs"]) for c in code) > len(code) // 2
    assert "image/png" in text and "<svg" in text
    assert "/tmp/" not in text and "site-packages/" not in text
    assert len(text) < 1_500_000
