"""Settings that ask for more than this machine has. Checked without loading torch."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from rlhf_studio.config import EngineConfig, LoraConfig, RunConfig, StageConfig
from rlhf_studio.config.io import Problem
from rlhf_studio.inputs.checks.accelerate_settings import launch_in_file, launch_problems
from rlhf_studio.language import S_


def machine_problems(config: StageConfig, gpus: int | None) -> Iterator[Problem]:
    """Settings that this machine or the other settings do not allow. ``gpus``: how many there are; None when nobody can tell."""
    model = config.model
    on_cpu = config.engine.device == "cpu" or gpus == 0
    yield from device_problems(config.engine, gpus)
    yield from _process_problems(config, 0 if on_cpu else gpus)
    if model.quantization != "none":
        if on_cpu:
            yield Problem("model.quantization", f"{model.quantization} weights need a CUDA GPU, and this run has none; use none")
        elif find_spec("bitsandbytes") is None:
            yield Problem("model.quantization", f"{model.quantization} weights need the package bitsandbytes: pip install bitsandbytes")
        lora = getattr(config, "lora", None)
        if isinstance(lora, LoraConfig):  # else nothing is trained
            yield from _quantized_base_problems(lora)
        if isinstance(config, RunConfig) and (config.critic.kind, config.critic.start) == ("separate", "policy"):
            yield Problem("critic.start", "a quantized policy cannot be copied and trained; start the critic as a reward model or a model")
    if model.attention == "flash_attention_2":
        if on_cpu:
            yield Problem("model.attention", "flash_attention_2 needs a CUDA GPU, and this run has none; use auto")
        elif find_spec("flash_attn") is None:
            yield Problem("model.attention", "flash_attention_2 needs the package flash-attn: pip install flash-attn; or use auto")
        if model.dtype == "float32":
            yield Problem("model.attention", "flash_attention_2 does not compute in float32; set model.dtype to bfloat16, or use auto")


def _quantized_base_problems(lora: LoraConfig) -> Iterator[Problem]:
    if not lora.enabled:
        yield Problem("model.quantization", "quantized weights cannot be trained; turn on lora.enabled, or use none")
    elif not lora.off_is_start:
        setting = "init_lora_weights" if lora.changes_base else "bias"
        allowed = S_("default, gaussian or orthogonal") if lora.changes_base else "none"
        yield Problem(f"lora.{setting}", f"a quantized base cannot be changed or copied; use {allowed}")


def device_problems(engine: EngineConfig, gpus: int | None) -> Iterator[Problem]:
    """A GPU that the settings name and this machine does not have. ``gpus``: as for :func:`machine_problems`."""
    if engine.device in ("auto", "cpu") or gpus is None:
        return
    if gpus == 0:
        yield Problem("engine.device", "no CUDA GPU is available here; use cpu or auto")
    elif engine.gpu_index is not None and engine.gpu_index >= gpus:
        choices = S_("the only one is cuda:0") if gpus == 1 else S_(f"there are cuda:0 to cuda:{gpus - 1}")
        yield Problem("engine.device", f"there is no GPU {engine.device}; {choices}")


def _process_problems(config: StageConfig, gpus: int | None) -> Iterator[Problem]:
    """``gpus``: how many the processes may take; 0 on a CPU, None when they cannot be counted."""
    engine = config.engine
    if not engine.accelerate_config:
        if gpus and engine.processes > gpus:
            have = S_("there is one") if gpus == 1 else S_(f"there are {gpus} of them")
            message = S_(f"{engine.processes} processes need a GPU each, and {have}; use at most {gpus}, or device cpu")
            yield Problem("engine.processes", message)
        yield from batch_split_problems(config, engine.processes or max(gpus or 1, 1))
        return
    try:
        launch = launch_in_file(engine.accelerate_config)
    except ValueError as error:
        yield Problem("engine.accelerate_config", str(error))
        return
    yield from launch_problems(config, launch)
    yield from batch_split_problems(config, max(launch.processes, 1))


def batch_split_problems(config: StageConfig, processes: int) -> Iterator[Problem]:
    """Every process takes the same number of episodes of each batch and minibatch. Only PPO has these."""
    if not isinstance(config, RunConfig):
        return
    for name in ("batch_size", "mini_batch_size"):
        size = getattr(config.ppo, name)
        if size % processes:
            yield Problem(f"ppo.{name}", f"{size} episodes cannot be shared by {processes} processes; use a multiple of them")
