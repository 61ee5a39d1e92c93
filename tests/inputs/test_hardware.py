"""What the machine has: the processor's memory, a container's limit, and what nvidia-smi says or does not say."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from rlhf_studio.inputs import hardware
from rlhf_studio.inputs.hardware import Machine, ask_gpu, find_machine, processor


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
    assert processor(tmp_path) == Machine("cpu", "CPU", free, total, False)


def answer(text: str) -> Any:
    return lambda command, **_: subprocess.CompletedProcess(command, 0, stdout=text, stderr="")


def test_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    text = "NVIDIA H100, 80GB, 100, 200, 9.0\nNVIDIA T4, 1, 2, 7.5\n"
    assert ask_gpu(answer(text)) == Machine("cuda", "NVIDIA H100, 80GB", 100 << 20, 200 << 20, True)
    assert ask_gpu(answer("NVIDIA T4, 1, 2, 7.5\n")) == Machine("cuda", "NVIDIA T4", 1 << 20, 2 << 20, False)


def test_no_usable_answer_means_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: Exception) -> Any:
        def run(*_: Any, **__: Any) -> Any:
            raise error

        return run

    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    for run in (answer(""), answer("A, [N/A], 2, 8.0"), fail(OSError(2, "gone")), fail(subprocess.TimeoutExpired("nvidia-smi", 5))):
        assert ask_gpu(run) is None
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert ask_gpu(fail(AssertionError("it must not be asked"))) is None


def test_the_device_follows_the_setting_and_the_answer_is_remembered(monkeypatch: pytest.MonkeyPatch, memory: None) -> None:
    gpu, asked = Machine("cuda", "G", 1, 2, True), []
    monkeypatch.setattr(hardware, "ask_gpu", lambda: asked.append(1) or gpu)
    monkeypatch.setattr(hardware._Remembered, "at", float("-inf"))
    assert find_machine("cpu").device == "cpu" and not asked
    assert find_machine("auto") == find_machine("cuda") == gpu and len(asked) == 1
    monkeypatch.setattr(hardware._Remembered, "answer", None)
    assert find_machine("auto").device == "cpu"
