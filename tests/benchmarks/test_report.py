"""docs/performance.md says what benchmarks/results/ says; the blocks against literals."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import report


def test_the_page_equals_what_the_results_give() -> None:
    page = report.PAGE.read_text(encoding="utf-8")
    assert page == report.filled(page, report.load()), "run: python -m benchmarks.report"
    for block in report.BLOCKS:
        assert f"<!-- results: {block} -->" in page


def test_only_what_stands_between_the_marks_changes() -> None:
    page = "before\n<!-- results: recording -->\nold\n<!-- end -->\nafter <!-- end -->\n"
    assert report.filled(page, {}) == "before\n<!-- results: recording -->\nNot measured yet.\n<!-- end -->\nafter <!-- end -->\n"
    with pytest.raises(KeyError, match="nonsense"):
        report.filled("<!-- results: nonsense -->\n<!-- end -->", {})


def speed_result() -> dict[str, Any]:
    def contestant(total: float, peak: float) -> dict[str, Any]:
        seconds = {"total": total, "rollout": total / 4, "scoring": total / 4, "optimisation": total / 4, "rest": total / 4}
        more = {"peak_resident": peak, "peak_gpu": None, "device": "cpu", "versions": {"torch": "2.13"}}
        return {"seconds": seconds, "episodes": 64 / total, "tokens": 2048 / total, **more}

    return {
        "workload": "w1",
        "command": "python -m benchmarks.speed --workload w1",
        "date": "2026-11-01",
        "machine": {"cpu": "Fast One", "cpus": 2},
        "contestants": {"ours": contestant(2.0, 5e8), "trl-1.12": contestant(8.0, 2e9)},
        "ratios": {"trl-1.12": {"median": 4.0, "min": 3.5, "max": 4.25}},
        "floor": {"rate": 1.5e11, "seconds": 1.0, "distance": {"median": 2.0, "min": 1.9, "max": 2.1}},
    }


def test_the_table_of_seconds() -> None:
    lines = report.speed({"w1": speed_result()})
    assert lines[2] == "| w1 | RLHF Studio | **2.00** | 0.50 | 0.50 | 0.50 | 0.50 | 32.0 | 1,024 | 500 |  |"
    assert lines[3] == "| w1 | TRL 1.12.0 | **8.00** | 2.00 | 2.00 | 2.00 | 2.00 | 8.0 | 256 | 2,000 | **4.00** (3.50 to 4.25) |"
    assert lines[-1] == "- w1: `python -m benchmarks.speed --workload w1` (Fast One, 2 CPUs, torch 2.13; 2026-11-01)"
    assert report.speed({}) == ["Not measured yet."]


def test_the_table_of_viewers() -> None:
    found = {
        "viewers": 30,
        "slowdown": {"median": 1.0312, "min": 1.0, "max": 1.1},
        "cpu_per_viewer": 0.0027,
        "poll_bytes": {"median": 119.0},
        "latency": {"median": 0.004, "p95": 0.0121},
        "bytes_per_viewer_second": 2345.0,
        "viewers_cpu": 0.05,
        "command": "c",
        "date": "d",
        "machine": {"cpu": "Fast One", "cpus": 2},
    }
    assert report.watching({"watching": found})[2] == "| 30 | **1.031** (1.000 to 1.100) | 2.7 ms/s | 119 B | 4.0 ms, 12.1 ms | 2.3 kB/s |"


def test_the_table_of_learning() -> None:
    def outcome(gold: float) -> dict[str, float]:
        return {"gold": gold, "gold_error": 0.02, "reward": 1.25, "kl": 4.0, "seconds": 9.0}

    found = {
        **{"seeds": [0, 1], "steps": 60, "answered": 256, "start": outcome(-0.01), "command": "python -m x", "date": "2026-11-01"},
        **{"machine": {"cpu": "Fast One", "cpus": 2}, "ours": [outcome(0.75), outcome(0.85)], "trl-1.12": [outcome(0.7), outcome(0.7)]},
    }
    lines = report.parity({"parity": found})
    assert lines[0] == "60 batches; gold on 256 held-out prompts, before training -0.010."
    assert lines[4] == "| 0 | 0.750 ± 0.020 | 0.700 ± 0.020 | 1.25 / 1.25 | 4.0 / 4.0 |"
    assert lines[6] == "| mean | **0.800** ± 0.050 | **0.700** ± 0.000 | | |"
    assert report.parity({}) == ["Not measured yet."]
