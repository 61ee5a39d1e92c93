"""Where and in which precision the engine computes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.compute.allocator import keep_freed_memory, let_gpu_memory_grow
from rlhf_studio.engine.compute.lanes import ONE_LANE, Lanes, lanes_for_this_cpu
from rlhf_studio.engine.compute.pulse import Pulse
from rlhf_studio.engine.compute.ranks import ONE_RANK, AccelerateRanks, Ranks, join_ranks
from rlhf_studio.inputs.checks.accelerate_settings import launch_in_environment, launch_problems
from rlhf_studio.inputs.checks.machine import batch_split_problems, device_problems
from rlhf_studio.language import S_


@dataclass(frozen=True)
class Compute:
    """Where and how a run computes.

    Attributes:
        device: a CPU or one GPU.
        dtype: number format of matrix products; weights that are trained stay float32.
        ranks: the processes that train together.
        lanes: the threads of a CPU that each take whole episodes.
        pulse: hears how far a step is.
    """

    device: torch.device
    dtype: torch.dtype
    ranks: Ranks = ONE_RANK
    lanes: Lanes = ONE_LANE
    pulse: Pulse = field(default_factory=Pulse, compare=False)

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Mixed precision where the dtype is not float32; otherwise nothing."""
        if self.dtype is torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def describe(self) -> str:
        """For people: ``cpu, 2 threads`` or the GPU's name, with the precision when it is not float32."""
        on_gpu = self.device.type == "cuda"
        threads = torch.get_num_threads()
        name = torch.cuda.get_device_name(self.device) if on_gpu else S_(f"cpu, {threads} threads") if threads != 1 else S_("cpu, 1 thread")
        name = name if self.dtype is torch.float32 else f"{name}, {str(self.dtype).removeprefix('torch.')}"
        if self.ranks.size == 1:
            return name
        count = self.ranks.size
        whole = S_(f"{count} processes, each {name}")
        return S_(f"{count} processes, each {name}, weights split by FSDP") if self.ranks.sharded else whole

    @property
    def load_device(self) -> torch.device:
        """Where models are loaded. With sharded weights this is the CPU: each block moves to the device when it is sharded."""
        return torch.device("cpu") if self.ranks.sharded else self.device

    def synchronise(self) -> None:
        """Wait until the GPU has finished its work, so that the time of a phase contains all of it and nothing else."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def peak_memory(self) -> float:
        """Bytes so far: the most GPU memory that was allocated, or on a CPU the largest resident size of the process."""
        if self.device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self.device))
        return float(peak_resident_bytes())


def peak_resident_bytes(status: Path = Path("/proc/self/status")) -> int:
    """Largest resident size of this process so far.

    Linux gives it in /proc. On Linux getrusage is not used: it starts from the size of the parent process, which may be larger.
    """
    with contextlib.suppress(OSError):
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    kilobyte = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes here, others kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kilobyte


Model = TypeVar("Model", bound=nn.Module)


def choose_compute(config: StageConfig) -> Compute:
    """Choose device, precision, ranks and lanes. Raises :class:`ConfigError` when this machine does not have what the settings name."""
    engine, dtype = config.engine, config.model.dtype
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if problems := [*device_problems(engine, gpus), *launch_problems(config, launch_in_environment(os.environ))]:
        raise ConfigError(problems)
    on_gpu = gpus > 0 and engine.device != "cpu"
    if on_gpu:
        let_gpu_memory_grow()
        torch.set_float32_matmul_precision("highest")  # some images switch TF32 on, whose products have ten binary digits
        torch.backends.cudnn.allow_tf32 = False
        # cuDNN plans its attention for each new shape, some 70 ms each, and every batch has lengths of its own.
        torch.backends.cuda.enable_cudnn_sdp(False)
    ranks = join_ranks(cpu=not on_gpu)
    if problems := list(batch_split_problems(config, ranks.size)):
        raise ConfigError(problems)
    device = torch.device("cpu" if not on_gpu else "cuda" if engine.device == "auto" else engine.device)
    if isinstance(ranks, AccelerateRanks):
        if engine.gpu_index is not None:  # accelerate gives each rank a GPU of its own
            raise ConfigError([Problem("engine.device", f"{engine.device} is one GPU, for one process; use cuda for several")])
        device = ranks.device
    elif engine.gpu_index is not None:
        torch.cuda.set_device(device)  # kernels of other libraries take the current device
    if device.type == "cpu":
        keep_freed_memory()
    if config.engine.threads and device.type == "cpu":
        torch.set_num_threads(config.engine.threads)
    # Older GPUs only emulate bfloat16, which is slower than float32.
    fast_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if dtype == "bfloat16" and device.type == "cuda" and not fast_bfloat16:
        raise ConfigError([Problem("model.dtype", "this GPU has no bfloat16; use float32 or auto")])
    use_bfloat16 = dtype == "bfloat16" or (dtype == "auto" and fast_bfloat16)
    lanes = lanes_for_this_cpu() if device.type == "cpu" and not ranks.sharded else ONE_LANE  # with FSDP, ranks must gather in one order
    return Compute(device, torch.bfloat16 if use_bfloat16 else torch.float32, ranks, lanes)


def placed(model: PreTrainedModel, where: torch.device | torch.dtype) -> PreTrainedModel:
    """The model moved to a device or a number format. A quantized model stays as it was loaded: transformers forbids moving it."""
    return model if getattr(model, "is_quantized", False) else moved(model, where)


def moved(model: Model, where: torch.device | torch.dtype) -> Model:
    """The model moved to a device or a number format; transformers' annotations hide what ``to`` takes."""
    nn.Module.to(model, where)
    return model


@torch.no_grad()
def round_products(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """Keep in ``dtype`` what autocast would convert to it for every product: the float32 weights and biases of plain linear layers.

    A pass under autocast gives the same numbers bit for bit, from half the memory. Embeddings, norms and weights that two layers use stay
    as they are: hidden states between the layers are float32, as they are in a model whose weights are trained. The model is changed in
    place. Nothing happens for float32.
    """
    if dtype.itemsize >= torch.float32.itemsize or getattr(model, "is_quantized", False):
        return model
    uses = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    for layer in model.modules():
        weights = list(layer.parameters(recurse=False))
        if type(layer) in (nn.Linear, Conv1D) and all(weight.dtype is torch.float32 and uses[id(weight)] == 1 for weight in weights):
            layer.to(dtype)
    return model
