"""What this machine can do, found out without loading torch, and the settings that ask for more."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from rlhf_studio.config import RunConfig
from rlhf_studio.config_io import Problem
from rlhf_studio.inputs.launcher import launch_in_file, launch_problems

GPU_FILES = (
    "/dev/nvidia[0-9]*",
    "/dev/nvidiactl",
    "/dev/dxg",  # Windows Subsystem for Linux
    "/dev/kfd",  # AMD: torch calls it cuda too
    "/dev/nvhost-*gpu*",  # Jetson
    "/dev/nvgpu",
)
"""Device files of which a driver for torch's ``cuda`` devices makes at least one."""


def has_gpu() -> bool | None:
    """False when torch cannot find a CUDA GPU here, True when there are signs of one, None when nothing can be told."""
    if sys.platform == "darwin":
        return False
    if not sys.platform.startswith("linux"):
        return None
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return False
    return any(glob.glob(pattern) for pattern in GPU_FILES)


def machine_problems(config: RunConfig, gpu: bool | None) -> Iterator[Problem]:
    """Settings that this machine or the other settings do not allow. ``gpu``: as :func:`has_gpu`, or what torch says."""
    model = config.model
    on_cpu = config.engine.device == "cpu" or gpu is False
    if config.engine.device == "cuda" and gpu is False:
        yield Problem("engine.device", "no CUDA GPU is available here; use cpu or auto")
    yield from _process_problems(config)
    if model.quantization != "none":
        if on_cpu:
            yield Problem("model.quantization", f"{model.quantization} weights need a CUDA GPU, and this run has none; use none")
        elif find_spec("bitsandbytes") is None:
            yield Problem("model.quantization", f"{model.quantization} weights need the package bitsandbytes: pip install bitsandbytes")
        if not config.lora.enabled:
            yield Problem("model.quantization", "quantized weights cannot be trained; turn on lora.enabled, or use none")
        elif not config.lora.off_is_start:
            setting = "init_lora_weights" if config.lora.changes_base else "bias"
            wanted = "default, gaussian or orthogonal" if config.lora.changes_base else "none"
            yield Problem(f"lora.{setting}", f"a quantized base cannot be changed or copied; use {wanted}")
        if config.critic.kind == "separate" and config.critic.start == "policy":
            yield Problem("critic.start", "a quantized policy cannot be copied and trained; start the critic as a reward model or a model")
    if model.attention == "flash_attention_2":
        if on_cpu:
            yield Problem("model.attention", "flash_attention_2 needs a CUDA GPU, and this run has none; use auto")
        elif find_spec("flash_attn") is None:
            yield Problem("model.attention", "flash_attention_2 needs the package flash-attn: pip install flash-attn; or use auto")
        if model.dtype == "float32":
            yield Problem("model.attention", "flash_attention_2 does not compute in float32; set model.dtype to bfloat16, or use auto")


def _process_problems(config: RunConfig) -> Iterator[Problem]:
    engine = config.engine
    if not engine.accelerate_config:
        yield from share_problems(config, max(engine.processes, 1))
        return
    try:
        launch = launch_in_file(engine.accelerate_config)
    except ValueError as error:
        yield Problem("engine.accelerate_config", str(error))
        return
    yield from launch_problems(config, launch)
    yield from share_problems(config, max(launch.processes, 1))


def share_problems(config: RunConfig, processes: int) -> Iterator[Problem]:
    """Every process takes the same number of episodes of each batch and minibatch."""
    for name in ("batch_size", "mini_batch_size"):
        size = getattr(config.ppo, name)
        if size % processes:
            yield Problem(f"ppo.{name}", f"{size} episodes cannot be shared by {processes} processes; use a multiple of them")
