"""Runs side by side: :func:`compare` for all but the curves, :func:`overlay` for one metric's curves, :func:`sweep_table` for a sweep."""

from rlhf_studio.analysis.compare.overlay import overlay
from rlhf_studio.analysis.compare.records import Comparison, Overlay, SweepTable
from rlhf_studio.analysis.compare.runs import MOST_RUNS, compare
from rlhf_studio.analysis.compare.sweep import sweep_table

__all__ = ["MOST_RUNS", "Comparison", "Overlay", "SweepTable", "compare", "overlay", "sweep_table"]
