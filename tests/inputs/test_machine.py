"""What a machine cannot do is said before a run starts, and the engine says the same."""

from __future__ import annotations

from typing import Any

import pytest

from rlhf_studio.config import RunConfig
from rlhf_studio.inputs import machine
from rlhf_studio.inputs.machine import has_gpu, machine_problems
from rlhf_studio.inputs.preflight import inspect_run


@pytest.mark.parametrize(
    ("platform", "files", "visible", "expected"),
    [
        ("linux", [], None, False),
        ("linux", ["/dev/nvidia0"], None, True),
        ("linux", ["/dev/nvidiactl"], "0,1", True),
        ("linux", ["/dev/dxg"], None, True),
        ("linux", ["/dev/kfd"], None, True),
        ("linux", ["/dev/nvidia0"], "", False),
        ("linux", ["/dev/nvidia0"], "-1", False),
        ("linux", ["/dev/null"], None, False),
        ("darwin", ["/dev/nvidia0"], None, False),
        ("win32", [], None, None),
    ],
)
def test_signs_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, platform: str, files: list[str], visible: str | None, expected: bool | None
) -> None:
    import fnmatch

    monkeypatch.setattr(machine.sys, "platform", platform)
    monkeypatch.setattr(machine.glob, "glob", lambda pattern: fnmatch.filter(files, pattern))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert has_gpu() is expected


LORA = {"enabled": True}
FOUR, FLASH = {"quantization": "4bit"}, {"attention": "flash_attention_2"}


@pytest.mark.parametrize(
    ("gpu", "settings", "field", "part"),
    [
        (False, {"engine": {"device": "cuda"}}, "engine.device", "no CUDA GPU is available here"),
        (False, {"model": FOUR, "lora": LORA}, "model.quantization", "4bit weights need a CUDA GPU"),
        (True, {"model": FOUR, "lora": LORA, "engine": {"device": "cpu"}}, "model.quantization", "4bit weights need a CUDA GPU"),
        (True, {"model": {"quantization": "8bit"}, "lora": LORA}, "model.quantization", "8bit weights need the package bitsandbytes"),
        (True, {"model": FOUR}, "model.quantization", "turn on lora.enabled"),
        (True, {"model": FOUR, "lora": {**LORA, "bias": "all"}}, "lora.bias", "cannot be changed or copied; use none"),
        (
            True,
            {"model": FOUR, "lora": {**LORA, "init_lora_weights": "pissa"}},
            "lora.init_lora_weights",
            "use default, gaussian or orthogonal",
        ),
        (
            True,
            {"model": FOUR, "lora": LORA, "critic": {"kind": "separate", "start": "policy"}},
            "critic.start",
            "a quantized policy cannot be copied and trained",
        ),
        (False, {"model": FLASH}, "model.attention", "flash_attention_2 needs a CUDA GPU"),
        (True, {"model": FLASH}, "model.attention", "needs the package flash-attn"),
        (True, {"model": {**FLASH, "dtype": "float32"}}, "model.attention", "does not compute in float32"),
    ],
)
def test_what_is_asked_of_a_machine_that_has_it_not(
    monkeypatch: pytest.MonkeyPatch, gpu: bool, settings: dict[str, Any], field: str, part: str
) -> None:
    packages = {"bitsandbytes", "flash_attn"} - {"bitsandbytes" if "bitsandbytes" in part else "flash_attn" if "flash-attn" in part else ""}
    monkeypatch.setattr(machine, "find_spec", lambda name: object() if name in packages else None)
    (problem,) = machine_problems(RunConfig.model_validate(settings), gpu)
    assert problem.field == field and part in problem.message


@pytest.mark.parametrize("gpu", [True, None])
def test_what_is_there_or_cannot_be_told_is_not_refused(monkeypatch: pytest.MonkeyPatch, gpu: bool | None) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda name: object())
    settings = {"engine": {"device": "cuda"}, "model": {**FOUR, **FLASH}, "lora": LORA}
    assert list(machine_problems(RunConfig.model_validate(settings), gpu)) == []
    assert list(machine_problems(RunConfig(), False)) == []


def test_the_check_before_a_start_asks_the_machine(make_config: Any, tmp_path: Any) -> None:
    config = make_config(engine__device="cuda")
    assert [problem.field for problem in inspect_run(config, tmp_path, gpu=lambda: False).problems] == ["engine.device"]
    assert inspect_run(config, tmp_path, gpu=lambda: True).problems == []
