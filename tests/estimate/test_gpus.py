"""Which GPUs there are: signs of a driver, what nvidia-smi says or does not say, and what CUDA_VISIBLE_DEVICES leaves."""

from __future__ import annotations

import fnmatch
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from rlhf_studio.config import EngineConfig
from rlhf_studio.runs import gpus
from rlhf_studio.runs.gpus import Gpu, ask_nvidia, find_gpus, has_gpu, visible
from rlhf_studio.runs.processes import launcher_command, number_of_processes, wants_several

H100 = "GPU-aaaa1111, NVIDIA H100, 80GB, 100, 200, 9.0\n"
T4 = "GPU-bbbb2222, NVIDIA T4, 1, 2, 7.5\n"
BOTH = (
    Gpu(0, "NVIDIA H100, 80GB", 100 << 20, 200 << 20, True, "GPU-aaaa1111"),
    Gpu(1, "NVIDIA T4", 1 << 20, 2 << 20, False, "GPU-bbbb2222"),
)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``machine(files, smi, visible, platform)``: its device files, what nvidia-smi lists, and CUDA_VISIBLE_DEVICES."""

    def set_up(files: list[str], listed: tuple[Gpu, ...] | None = None, visible: str | None = None, platform: str = "linux") -> None:
        monkeypatch.setattr(gpus.sys, "platform", platform)
        monkeypatch.setattr(gpus.glob, "glob", lambda pattern: fnmatch.filter(files, pattern))
        monkeypatch.setattr(gpus, "ask_nvidia", lambda: listed)
        monkeypatch.setattr(gpus._Remembered, "at", float("-inf"))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return set_up


@pytest.mark.parametrize(
    ("platform", "files", "visible", "expected"),
    [
        ("linux", [], None, False),
        ("linux", ["/dev/nvidia0"], None, True),
        ("linux", ["/dev/nvidiactl"], "0,1", True),
        ("linux", ["/dev/dxg"], None, True),
        ("linux", ["/dev/nvidia0"], "", False),
        ("win32", [], None, None),
    ],
)
def test_signs_of_a_gpu(machine: Callable[..., None], platform: str, files: list[str], visible: str | None, expected: bool | None) -> None:
    machine(files, None, visible, platform)
    assert has_gpu() is expected


# --- nvidia-smi --------------------------------------------------------------------------------------------------------------------


def answer(text: str) -> Any:
    return lambda command, **_: subprocess.CompletedProcess(command, 0, stdout=text, stderr="")


def test_all_gpus_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert ask_nvidia(answer(H100 + T4)) == BOTH
    unknown = Gpu(0, "NVIDIA GB10", None, 2 << 20, True, "GPU-c")
    assert ask_nvidia(answer("GPU-c, NVIDIA GB10, [N/A], 2, 12.1\n")) == (unknown,)
    assert ask_nvidia(answer("GPU-c, NVIDIA A, 1, [N/A], [N/A]\n")) == (Gpu(0, "NVIDIA A", 1 << 20, None, False, "GPU-c"),)


def test_no_usable_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: Exception) -> Any:
        def run(*_: Any, **__: Any) -> Any:
            raise error

        return run

    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    for run in (answer(""), answer("No devices were found"), fail(OSError(2, "gone")), fail(subprocess.TimeoutExpired("nvidia-smi", 5))):
        assert ask_nvidia(run) is None
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert ask_nvidia(fail(AssertionError("it must not be asked"))) is None


def test_the_answer_is_remembered_for_a_while(machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    machine(["/dev/nvidia0"])
    calls: list[int] = []
    monkeypatch.setattr(gpus, "ask_nvidia", lambda: calls.append(1) or BOTH)
    assert find_gpus() == find_gpus() == BOTH and len(calls) == 1
    monkeypatch.setattr(gpus._Remembered, "at", gpus.time.monotonic() - 11)
    find_gpus()
    assert len(calls) == 2


# --- how many, and which -------------------------------------------------------------------------------------------------------------


def test_how_many_there_are(machine: Callable[..., None]) -> None:
    files = [f"/dev/nvidia{name}" for name in ("0", "1", "2", "ctl", "-uvm")]
    machine(files, BOTH)
    assert find_gpus() == BOTH
    machine([], BOTH)
    assert find_gpus() == ()  # a tool without a driver
    machine(files)
    assert [gpu.name for gpu in find_gpus() or ()] == ["GPU 0", "GPU 1", "GPU 2"]
    machine(files, None, "0,2")
    assert [(gpu.index, gpu.name) for gpu in find_gpus() or ()] == [(0, "GPU 0"), (1, "GPU 2")]
    machine(["/dev/kfd"])
    assert find_gpus() is None  # there is something, but nobody tells how many
    machine([], None, None, "win32")
    assert find_gpus() is None


@pytest.mark.parametrize(
    ("variable", "names"),
    [
        (None, ["NVIDIA H100, 80GB", "NVIDIA T4"]),
        ("1", ["NVIDIA T4"]),
        ("GPU-bbbb,0", ["NVIDIA T4", "NVIDIA H100, 80GB"]),
        ("0,7,1", ["NVIDIA H100, 80GB"]),  # CUDA leaves off at the first that it does not know
        ("", []),
        ("MIG-9", ["GPU 0"]),
    ],
)
def test_only_visible_gpus_count_and_are_numbered_anew(variable: str | None, names: list[str]) -> None:
    gpus_left = visible(BOTH, {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable})
    assert [gpu.name for gpu in gpus_left] == names
    assert [gpu.index for gpu in gpus_left] == list(range(len(names)))


def test_a_process_for_every_gpu(machine: Callable[..., None], tmp_path: Any) -> None:
    every = EngineConfig(processes=0)
    machine(["/dev/nvidia0"], BOTH)
    assert number_of_processes(every) == 2 and wants_several(every, {})
    command = launcher_command(tmp_path, every, "train")
    assert command[command.index("--num_processes") + 1] == "2"
    machine(["/dev/nvidia0"], BOTH, "1")
    assert number_of_processes(every) == 1
    machine([])
    assert number_of_processes(every) == 1 and not wants_several(every, {})
    machine(["/dev/nvidia0"], BOTH)
    assert number_of_processes(EngineConfig(processes=0, device="cpu")) == 1
    assert number_of_processes(EngineConfig(processes=5)) == 5
    named = launcher_command(tmp_path, EngineConfig(accelerate_config="some.yaml"), "train")
    assert named[named.index("--config_file") + 1] == "some.yaml" and "--num_processes" not in named
