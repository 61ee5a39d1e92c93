"""What accelerate's settings ask for, read from its file before a run starts, or from the environment that its launcher prepared."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from rlhf_studio.config import RunConfig, StageConfig
from rlhf_studio.config.io import Problem
from rlhf_studio.language import S_

FSDP_VARIABLE = "ACCELERATE_USE_FSDP"
FIELD = "engine.accelerate_config"
OTHER_KINDS = {"DEEPSPEED": "DeepSpeed", "MEGATRON_LM": "Megatron-LM"}
"""Ways of sharding that are not supported. If they were not refused, every process would hold the whole model without a word."""


@dataclass(frozen=True)
class Launch:
    """What matters here of accelerate's settings.

    Attributes:
        kind: accelerate's distributed_type: MULTI_GPU, FSDP, DEEPSPEED, ...; empty when nothing was asked for.
        offload: whether FSDP is to keep the weights in the CPU's memory.
        processes: how many, over all machines; 0 when it is not given.
    """

    kind: str = ""
    offload: bool = False
    processes: int = 0

    @property
    def shards(self) -> bool:
        """Whether the weights are to be split over the processes."""
        return self.kind == "FSDP"


def default_config_file(environment: Mapping[str, str] = os.environ) -> str:
    """Where ``accelerate config`` writes: in the cache folder of Hugging Face."""
    cache = environment.get("XDG_CACHE_HOME", "~/.cache")
    home = environment.get("HF_HOME") or os.path.join(cache, "huggingface")
    return str(Path(home).expanduser() / "accelerate" / "default_config.yaml")


def launch_in_environment(environment: Mapping[str, str]) -> Launch:
    """What ``accelerate launch`` put into the environment of the process that it started."""
    kinds = {"FSDP": FSDP_VARIABLE, "DEEPSPEED": "ACCELERATE_USE_DEEPSPEED", "MEGATRON_LM": "ACCELERATE_USE_MEGATRON_LM"}
    kind = next((kind for kind, variable in kinds.items() if _says_yes(environment, variable)), "")
    return Launch(kind, _says_yes(environment, "FSDP_OFFLOAD_PARAMS"), int(environment.get("WORLD_SIZE", "0")))


def _says_yes(environment: Mapping[str, str], variable: str) -> bool:
    return environment.get(variable, "").lower() in ("true", "1")


def launch_in_file(path: str) -> Launch:
    """What a file written by ``accelerate config`` says. Raises ValueError with the cause when it cannot be read."""
    try:
        settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}; 'accelerate config' writes one") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read as YAML ({' '.join(str(error).split())[:200]})") from error
    if not isinstance(settings, dict):
        raise ValueError(f"{path} holds no settings of accelerate; 'accelerate config' writes such a file")
    fsdp, processes = settings.get("fsdp_config"), settings.get("num_processes")
    offload = isinstance(fsdp, dict) and fsdp.get("fsdp_offload_params") in (True, "true")
    return Launch(str(settings.get("distributed_type", "")), offload, processes if isinstance(processes, int) else 0)


def launch_problems(config: StageConfig, launch: Launch) -> Iterator[Problem]:
    """Settings that cannot be had together with what accelerate is asked for."""
    if launch.kind in OTHER_KINDS:
        message = S_(f"{OTHER_KINDS[launch.kind]} is not supported; use distributed_type: FSDP, which also splits weights, gradients")
        yield Problem(FIELD, f"{message} and the optimizer's state over the processes (docs/many-gpus.md)")
    if not launch.shards:
        return
    if config.stage != "ppo":
        message = S_(f"only PPO splits weights with FSDP, and in the stage {config.stage} every process would hold the whole model")
        yield Problem(FIELD, f"{message}; use distributed_type: MULTI_GPU, or LoRA to need less memory")
    if launch.offload:
        yield Problem(FIELD, "fsdp_offload_params: true is not supported; set it to false, or use LoRA to need less memory")
    if config.model.quantization != "none":
        message = S_(f"{config.model.quantization} weights cannot be split by FSDP; use none, or distributed_type: MULTI_GPU")
        yield Problem("model.quantization", message)
    if isinstance(config, RunConfig) and config.ppo.reference_ema and config.lora.enabled:
        yield Problem("ppo.reference_ema", "a reference that follows a LoRA policy cannot be split by FSDP; use 0, or no LoRA")
