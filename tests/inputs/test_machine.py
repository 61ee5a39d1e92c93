"""What a machine cannot do is said before a run starts, and the engine says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import RunConfig
from rlhf_studio.inputs.checks import machine
from rlhf_studio.inputs.checks.accelerate_settings import default_config_file
from rlhf_studio.inputs.checks.machine import machine_problems
from rlhf_studio.inputs.preflight import inspect_run
from rlhf_studio.runs.gpus import Gpu

LORA = {"enabled": True}
FOUR, FLASH = {"quantization": "4bit"}, {"attention": "flash_attention_2"}


@pytest.mark.parametrize(
    ("gpus", "settings", "field", "part"),
    [
        (0, {"engine": {"device": "cuda"}}, "engine.device", "no CUDA GPU is available here"),
        (1, {"model": {"quantization": "8bit"}, "lora": LORA}, "model.quantization", "8bit weights need the package bitsandbytes"),
        (1, {"model": FOUR}, "model.quantization", "turn on lora.enabled"),
        (1, {"model": FOUR, "lora": {**LORA, "bias": "all"}}, "lora.bias", "cannot be changed or copied; use none"),
        (1, {"model": FOUR, "lora": {**LORA, "init_lora_weights": "pissa"}}, "lora.init_lora_weights", "use default, gaussian or"),
        (1, {"model": FOUR, "lora": LORA, "critic": {"kind": "separate", "start": "policy"}}, "critic.start", "a quantized policy"),
        (0, {"model": FLASH}, "model.attention", "flash_attention_2 needs a CUDA GPU"),
        (1, {"model": {**FLASH, "dtype": "float32"}}, "model.attention", "does not compute in float32"),
    ],
)
def test_what_is_asked_of_a_machine_that_has_it_not(
    monkeypatch: pytest.MonkeyPatch, gpus: int, settings: dict[str, Any], field: str, part: str
) -> None:
    packages = {"bitsandbytes", "flash_attn"} - {"bitsandbytes" if "bitsandbytes" in part else "flash_attn" if "flash-attn" in part else ""}
    monkeypatch.setattr(machine, "find_spec", lambda name: object() if name in packages else None)
    (problem,) = machine_problems(RunConfig.model_validate(settings), gpus)
    assert problem.field == field and part in problem.message


@pytest.mark.parametrize("gpus", [1, 8, None])
def test_what_is_there_or_cannot_be_told_is_not_refused(monkeypatch: pytest.MonkeyPatch, gpus: int | None) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda name: object())
    settings = {"engine": {"device": "cuda"}, "model": {**FOUR, **FLASH}, "lora": LORA}
    assert list(machine_problems(RunConfig.model_validate(settings), gpus)) == []
    assert list(machine_problems(RunConfig(), 0)) == []


def test_the_check_before_a_start_asks_the_machine(make_config: Any, tmp_path: Any) -> None:
    config = make_config(engine__device="cuda")
    assert [problem.field for problem in inspect_run(config, tmp_path, gpus=lambda: ()).problems] == ["engine.device"]
    for there in ((Gpu(0, "A"),), None):
        assert inspect_run(config, tmp_path, gpus=lambda there=there: there).problems == []


BATCHES = {"batch_size": 48, "mini_batch_size": 24}


@pytest.mark.parametrize(
    ("gpus", "engine", "field", "message"),
    [
        (0, {"device": "cuda:0"}, "engine.device", "no CUDA GPU is available here; use cpu or auto"),
        (1, {"device": "cuda:1"}, "engine.device", "there is no GPU cuda:1; the only one is cuda:0"),
        (8, {"device": "cuda:8"}, "engine.device", "there is no GPU cuda:8; there are cuda:0 to cuda:7"),
        (1, {"processes": 2}, "engine.processes", "2 processes need a GPU each, and there is one; use at most 1, or device cpu"),
        (2, {'device': 'cuda', 'processes': 3}, 'engine.processes', '3 processes need a GPU each, and there are 2 of them; use at most 2,'),
        (0, {"accelerate_config": "none.yaml"}, "engine.accelerate_config", "there is no file none.yaml; 'accelerate config' writes one"),
    ],
)  # fmt: skip
def test_gpus_that_are_not_there(gpus: int, engine: dict[str, Any], field: str, message: str) -> None:
    (problem,) = machine_problems(RunConfig.model_validate({"engine": engine, "ppo": BATCHES}), gpus)
    assert problem.field == field and message in problem.message


@pytest.mark.parametrize(
    ("gpus", "engine"),
    [
        (1, {"device": "cuda:0"}),
        (8, {"device": "cuda", "processes": 0}),
        (None, {"device": "cuda:9"}),
        (0, {"processes": 3}),
        (1, {"device": "cpu", "processes": 3}),
        (1, {"accelerate_config": "several.yaml", "processes": 5}),
    ],
)
def test_gpus_that_are_there_or_not_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: int | None, engine: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "several.yaml").write_text("{distributed_type: MULTI_GPU, num_processes: 8}")
    assert list(machine_problems(RunConfig.model_validate({"engine": engine, "ppo": BATCHES}), gpus)) == []


def test_every_gpu_takes_its_share_of_a_batch() -> None:
    """48 episodes can be shared by 8 GPUs, and so can 24; five GPUs can share neither."""
    config = RunConfig.model_validate({"engine": {"device": "cuda", "processes": 0}, "ppo": BATCHES})
    assert [(problem.field, problem.message) for problem in machine_problems(config, 5)] == [
        ("ppo.batch_size", "48 episodes cannot be shared by 5 processes; use a multiple of them"),
        ("ppo.mini_batch_size", "24 episodes cannot be shared by 5 processes; use a multiple of them"),
    ]


def test_where_accelerate_writes_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_config_file({}) == str(tmp_path / ".cache/huggingface/accelerate/default_config.yaml")
    assert default_config_file({"XDG_CACHE_HOME": "/cache"}) == "/cache/huggingface/accelerate/default_config.yaml"
    assert default_config_file({"HF_HOME": "/hub", "XDG_CACHE_HOME": "/cache"}) == "/hub/accelerate/default_config.yaml"
