"""Choosing device and precision, on machines with and without a GPU."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.compute import device as device_module
from rlhf_studio.engine.compute.device import Compute, choose_compute, placed
from rlhf_studio.engine.compute.ranks import AccelerateRanks


def config(device: str = "auto", dtype: str = "auto", threads: int = 0) -> RunConfig:
    return RunConfig.model_validate({"engine": {"device": device, "threads": threads}, "model": {"dtype": dtype}})


def pretend(monkeypatch: pytest.MonkeyPatch, *, gpu: bool, bfloat16: str = "native") -> None:
    """A machine with or without a GPU, whose bfloat16 is native or emulated."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: bfloat16 == "native" or including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Great GPU")
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 12345)


def test_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpu, bfloat16, requested, dtype, expected in (
        (False, "native", "auto", "auto", ("cpu", torch.float32)),
        (False, "native", "cpu", "bfloat16", ("cpu", torch.bfloat16)),
        (False, "native", "auto", "float32", ("cpu", torch.float32)),
        (True, "native", "auto", "auto", ("cuda", torch.bfloat16)),
        (True, "native", "cuda", "float32", ("cuda", torch.float32)),
        (True, "native", "cpu", "auto", ("cpu", torch.float32)),
        (True, "emulated", "auto", "auto", ("cuda", torch.float32)),
    ):
        pretend(monkeypatch, gpu=gpu, bfloat16=bfloat16)
        compute = choose_compute(config(requested, dtype))
        assert (compute.device.type, compute.dtype) == expected, (gpu, bfloat16, requested, dtype)


def test_what_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpu, requested, dtype, field, part in (
        (False, "cuda", "auto", "engine.device", "no CUDA GPU is available here; use cpu or auto"),
        (True, "cuda:2", "auto", "engine.device", "there is no GPU cuda:2; there are cuda:0 to cuda:1"),
        (True, "cuda", "bfloat16", "model.dtype", "no bfloat16; use float32 or auto"),
    ):
        pretend(monkeypatch, gpu=gpu, bfloat16="emulated")
        with pytest.raises(ConfigError, match=part) as caught:
            choose_compute(config(requested, dtype))
        assert caught.value.problems[0].field == field


def test_a_named_gpu_is_the_one_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, gpu=True)
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    assert choose_compute(config("cuda:1")).device == torch.device("cuda", 1)
    assert current == [torch.device("cuda", 1)]  # for libraries that take the current one
    assert choose_compute(config("cuda")).device == choose_compute(config("auto")).device == torch.device("cuda")
    assert len(current) == 1


def test_a_named_gpu_is_for_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that somebody started by hand have each been given their own."""
    pretend(monkeypatch, gpu=True)
    ranks = object.__new__(AccelerateRanks)
    ranks.rank, ranks.size, ranks.device = 1, 2, torch.device("cuda", 1)
    monkeypatch.setattr(device_module, "join_ranks", lambda cpu: ranks)
    with pytest.raises(ConfigError, match="engine.device: cuda:0 is one GPU, for one process; use cuda for several"):
        choose_compute(config("cuda:0"))
    assert choose_compute(config("cuda")).device == torch.device("cuda", 1)


def test_threads() -> None:
    for threads, expected in ((2, 2), (0, 1)):
        torch.set_num_threads(1)
        choose_compute(config("cpu", threads=threads))
        assert torch.get_num_threads() == expected


def test_autocast_is_on_for_bfloat16_only() -> None:
    product = {}
    for dtype in (torch.float32, torch.bfloat16):
        with Compute(torch.device("cpu"), dtype).autocast():
            product[dtype] = (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
    assert product == {torch.float32: torch.float32, torch.bfloat16: torch.bfloat16}
    assert isinstance(Compute(torch.device("cpu"), torch.float32).autocast(), contextlib.nullcontext)


def test_waiting_for_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    Compute(torch.device("cpu"), torch.float32).synchronise()
    assert waited == []
    Compute(torch.device("cuda"), torch.float32).synchronise()
    assert waited == [torch.device("cuda")]


def test_peak_memory_is_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, gpu=True)
    assert Compute(torch.device("cuda"), torch.float32).peak_memory() == 12345.0
    monkeypatch.setattr(device_module, "peak_resident_bytes", lambda: 678)
    assert Compute(torch.device("cpu"), torch.float32).peak_memory() == 678.0


def test_a_quantized_model_is_not_moved() -> None:
    """transformers raises when it is; and changing its number format would undo the quantization."""
    model = torch.nn.Linear(2, 2)
    assert placed(model, torch.bfloat16).weight.dtype is torch.bfloat16  # type: ignore[arg-type]
    model.is_quantized = True  # type: ignore[assignment]
    assert placed(model, torch.float32).weight.dtype is torch.bfloat16  # type: ignore[arg-type]
