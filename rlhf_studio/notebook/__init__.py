"""A run in a notebook: its numbers as pandas frames, its charts as Plotly figures, its diagnosis as an object.

from rlhf_studio.notebook import open_run

run = open_run("workspace/runs/20260101-120000-abcdef")
run.metrics["objective/kl"]
run.figure("kl")
"""

from __future__ import annotations

from rlhf_studio.notebook.run import OpenRun, open_run

__all__ = ["OpenRun", "open_run"]
