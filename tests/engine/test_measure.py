"""Measuring the machine, the process's peak memory, and the event that compares it with the plan."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_studio.config import RunConfig
from rlhf_studio.engine import measure, memory
from rlhf_studio.engine.device import peak_resident_bytes
from rlhf_studio.inputs.preflight import Report, inspect_run
from tests.engine.conftest import small_config


def test_the_rate_counts_two_operations_per_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves half a second per reading: 4 products in half a second."""
    times = iter(range(100))
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(times) / 2)
    assert measure.multiply_rate(torch.device("cpu"), seconds=0.0, size=3) == pytest.approx(4 * 2 * 27 / 0.5)


def test_the_file_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "multiply_rate", lambda device: 7.5)
    assert measure.main([str(tmp_path / "machine-cpu.json")]) == 0
    stored = json.loads((tmp_path / "machine-cpu.json").read_text())
    assert (stored["device"], stored["rate"]) == ("cpu", 7.5)
    assert [path.name for path in tmp_path.iterdir()] == ["machine-cpu.json"]


def test_the_peak_is_this_process_and_not_the_one_that_started_it() -> None:
    """This test process is large (it holds torch); a child that imports little must not report its parent's size."""
    code = "import resource; from pathlib import Path; print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    if not Path("/proc/self/status").exists():
        pytest.skip("this system has no /proc")
    child = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) * 1024
    assert peak_resident_bytes() > 3 * child > 0


def test_the_peak_is_read_from_the_status_file_or_asked_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t 1234 kB\n")
    assert peak_resident_bytes(tmp_path / "status") == 1234 * 1024
    (tmp_path / "other").write_text("Name:\tx\n")
    assert peak_resident_bytes(tmp_path / "other") == peak_resident_bytes(tmp_path / "none") > 10_000_000


def test_the_event_after_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config(tmp_path)
    plan = inspect_run(config, tmp_path).plan
    event = memory.memory_event(config, tmp_path, 543_210_000.0)
    low, high = plan.measured_range()
    assert event.data == {"peak": 543_210_000.0, "low": low, "high": high}
    assert event.text == (
        f"After the first step the most memory held was 543 MB; the estimate was {low / 1e6:.0f} MB to {high / 1e6:.0f} MB."
    )

    def nothing(config: RunConfig, folder: Any) -> Report:
        return Report([])

    def gone(config: RunConfig, folder: Any) -> Report:
        raise FileNotFoundError(2, "gone")

    for answer in (nothing, gone):
        monkeypatch.setattr(memory, "inspect_run", answer)
        event = memory.memory_event(config, tmp_path, 5.2e9)
        assert event.text == "After the first step the most memory held was 5.2 GB; the models' files did not allow an estimate."
