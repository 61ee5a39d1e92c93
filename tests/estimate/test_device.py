"""The device that a run takes: the processor's memory, a container's limit, and the GPU that the settings lead to."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from rlhf_studio.config import EngineConfig
from rlhf_studio.inputs.estimate.device import Device, core_count, find_device, processor
from rlhf_studio.runs.gpus import Gpu


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=800, total=1000))


@pytest.mark.parametrize(
    ("limit", "used", "free", "total"),
    [(None, None, 800, 1000), ("max", "5", 800, 1000), ("2000", "5", 800, 1000), ("500", "100", 400, 500), ("500", None, 500, 500),
     ("500", "600", 0, 500), ("900", "10", 800, 900)],
)  # fmt: skip
def test_the_processor_and_its_container(memory: None, tmp_path: Path, limit: Any, used: Any, free: int, total: int) -> None:
    for name, text in (("memory.max", limit), ("memory.current", used)):
        if text is not None:
            (tmp_path / name).write_text(f"{text}\n")
    assert processor(tmp_path) == Device("cpu", "CPU", free, total, False, cores=core_count())


GPUS = (Gpu(0, "A", 70, 80, True), Gpu(1, "B", 30, 40, False), Gpu(2, "C", 60, 80, True))


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ({"device": "cpu"}, "CPU"),
        ({"device": "auto"}, "A"),
        ({"device": "cuda:2"}, "C"),
        ({"device": "cuda", "processes": 0}, "B"),  # each must fit: the one with the least room decides
        ({"device": "cuda", "processes": 3}, "B"),
        ({"device": "cuda", "accelerate_config": "some.yaml"}, "B"),
    ],
)
def test_the_device_follows_the_settings(memory: None, engine: dict[str, Any], name: str) -> None:
    device = find_device(EngineConfig(**engine), lambda: GPUS)
    assert device.name == name
    by_name = {gpu.name: Device("cuda", gpu.name, gpu.free, gpu.total, gpu.bfloat16) for gpu in GPUS}
    assert device == by_name.get(name, processor())


@pytest.mark.parametrize("there", [(), None])
def test_without_a_gpu_it_is_the_processor(memory: None, there: Any) -> None:
    assert find_device(EngineConfig(), lambda: there).kind == "cpu"
    assert find_device(EngineConfig(device="cuda:1"), lambda: there).kind == "cpu"
