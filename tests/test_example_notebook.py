"""The example notebook: daily what it reads, on a recorded run; by hand (``-m long``) the whole, in a kernel as people run it."""

from __future__ import annotations

import json
import os
import runpy
import sys
import zipfile
from pathlib import Path

import pytest

from rlhf_studio.config.bundled import COLLAPSED_RUN

NOTEBOOK = Path(__file__).parents[1] / "examples" / "one_run.ipynb"


def test_what_the_notebook_reads_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its cells from ``open_run`` on, with the recorded run that collapsed in place of the one that it trains; and no output is kept."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    with zipfile.ZipFile(COLLAPSED_RUN) as files:
        files.extractall(tmp_path)
    begin = next(place for place, cell in enumerate(code) if cell["id"] == "open")
    program = tmp_path / "cells.py"
    program.write_text("\n".join("".join(cell["source"]) for cell in code[begin:]), encoding="utf-8")
    names = runpy.run_path(str(program), {"folder": str(tmp_path / "collapsed")})
    said = capsys.readouterr().out
    assert "Collapsed" in said and "Lower" in said
    assert names["tokens"].attrs["prompt"] in said


@pytest.mark.long
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]), prepend=os.pathsep)
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    kernel = tmp_path / "kernels" / "here"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "here", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    done = nbclient.NotebookClient(notebook, timeout=600, kernel_name="here", resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = {cell["id"]: cell.get("outputs", []) for cell in done.cells}
    assert "done:" in "".join(part.get("text", "") for part in outputs["train"])
    assert outputs["verdict"][0]["text"].startswith("Improved")
    for chart in ("score", "kl"):
        assert "application/vnd.plotly.v1+json" in outputs[chart][0]["data"]
