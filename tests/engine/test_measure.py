"""Measuring the machine, the process's peak memory, and the event that compares it with the plan."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from rlhf_studio.engine.compute import measure
from rlhf_studio.engine.compute.device import peak_resident_bytes
from rlhf_studio.engine.process.memory_event import memory_event


def test_the_rate_counts_two_operations_per_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves half a second per reading: 4 products in half a second. The first trial, which is faster, does not count."""
    times = iter([0, 0, 0.001, *(number / 2 for number in range(1, 100))])
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(times))
    monkeypatch.setitem(measure.PRODUCTS, "cpu", (3, 4))
    assert measure.multiply_rate(torch.device("cpu"), seconds=0.0) == pytest.approx(4 * 2 * 27 / 0.5)


def test_a_rate_is_corrected_for_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads for 10 seconds, of which the processor gave 5 seconds of each thread's 10: alone they were twice as fast."""
    monkeypatch.setattr(measure, "multiply_rate", lambda device: 6.0)
    monkeypatch.setattr(measure.torch, "get_num_threads", lambda: 2)
    for worked, rate in ((10.0, 12.0), (20.0, 6.0), (21.0, 6.0), (0.0, 24.0)):
        clock, processor = iter([0.0, 10.0]), iter([0.0, worked])
        monkeypatch.setattr(measure.time, "perf_counter", lambda clock=clock: next(clock))
        monkeypatch.setattr(measure.time, "process_time", lambda processor=processor: next(processor))
        assert measure.quiet_rate(torch.device("cpu")) == rate


def test_a_gpu_is_given_more_work_than_starting_it_takes() -> None:
    """Of a card of 1,000 TFLOP/s that takes 8 microseconds to be given a product, and 50 to be waited for, less than 1 % is lost."""
    size, products = measure.PRODUCTS["cuda"]
    working = products * 2 * size**3 / 1e15
    assert (max(products * 8e-6 - working, 0) + 50e-6) / working < 0.01


def test_the_file_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "quiet_rate", lambda device: 7.5)
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


def test_the_event_after_the_first_step() -> None:
    event = memory_event((438_000_000, 1_635_000_000), 543_210_000.0, 1_000)
    limit = event.data.pop("limit")
    assert limit == float(psutil.virtual_memory().total) or torch.cuda.is_available()
    assert event.data == {"peak": 543_210_000.0, "low": 438_000_000, "high": 1_635_000_000, "weights": 1_000}
    assert event.text == "After the first step the most memory held was 543 MB; the estimate was 438 MB to 1.6 GB."
    event = memory_event(None, 5.2e9, None)
    assert event.data == {"peak": 5.2e9, "limit": limit, "weights": None}
    assert event.text == "After the first step the most memory held was 5.2 GB; nothing was estimated before the start."
