"""The device itself: what it is, whether single operations are right, and how fast it multiplies and copies."""

from __future__ import annotations

import platform
import shutil
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor
from torch.nn import functional

from rlhf_studio import __version__
from rlhf_studio.engine.check.checks import CheckFailed, NoDevice, Numbers, Task
from rlhf_studio.engine.check.runs import formats, settings
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.compute.measure import multiply_rate
from rlhf_studio.inputs.estimate.device import processor
from rlhf_studio.language import S_
from rlhf_studio.units import format_bytes

PACKAGES = ("torch", "transformers", "peft", "accelerate", "bitsandbytes")
COPIED = {"cpu": 1 << 24, "cuda": 1 << 28}  # float32 numbers; far more than a cache holds
COPIES = 8
ALLOWED = {"float32": 1e-5, "bfloat16": 2.0**-7}
"""Root mean square of an operation's error relative to that of its result. float32 rounds by 6e-8, and sums of some hundred numbers stay
below 1e-6; TF32, which has ten binary digits, errs by 3e-4. bfloat16 rounds inputs and result by up to 2^-9 each: about 2^-8.5 together."""


def check_device(task: Task) -> tuple[str, Numbers]:
    """Name, memory, driver and versions. Raises :class:`NoDevice` where torch does not find it."""
    numbers: Numbers = {"program": __version__, "python": platform.python_version(), "system": platform.platform()}
    numbers |= {name: installed for name in PACKAGES if (installed := _version(name))}
    if task.kind == "cuda":
        numbers |= _gpu(task)
    else:
        cpu = processor()
        numbers |= {"name": f"{platform.machine()} processor", "threads": torch.get_num_threads(), "memory": float(cpu.total or 0)}
    memory = f", {format_bytes(float(numbers['memory']))}" if "memory" in numbers else ""
    driver = f", driver {numbers['driver']}" if numbers.get("driver") else ""
    packages = ", ".join(f"{name} {numbers[name]}" for name in PACKAGES if name in numbers)
    return f"{numbers['name']}{memory}{driver}; Python {numbers['python']}, {packages}", numbers


def _gpu(task: Task) -> Numbers:
    if not torch.cuda.is_available():
        built = "" if torch.version.cuda or torch.version.hip else S_(f"; torch {torch.__version__} was built without CUDA")
        raise NoDevice(S_(f"torch finds no CUDA GPU here{built}"))
    count = torch.cuda.device_count()
    index = int(task.device.partition(":")[2] or 0)
    if index >= count:
        raise NoDevice(S_(f"there is no GPU {task.device}; torch finds {count}, from cuda:0 on"))
    free, total = torch.cuda.mem_get_info(index)
    about: Numbers = {"name": torch.cuda.get_device_name(index), "gpus": count, "memory": float(total), "free": float(free)}
    return {
        **about,
        "cuda": str(torch.version.cuda or torch.version.hip),
        "driver": _driver(),
        "bfloat16": str("bfloat16" in formats(task)),
    }


def _driver() -> str:
    """The version of NVIDIA's driver; empty where nvidia-smi does not tell."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        query = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
        return (subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout.split() or [""])[0]
    except (OSError, subprocess.SubprocessError):
        return ""


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def check_kernels(task: Task) -> tuple[str, Numbers]:
    """Single operations against the CPU's in float64. Raises :class:`CheckFailed` that names the operation."""
    device = choose_compute(settings(task, "world")).device  # with the precision of products that runs compute in
    numbers: Numbers = {}
    wrong: list[str] = []
    for name in formats(task):
        dtype, allowed = getattr(torch, name), ALLOWED[name]
        for operation, compute in OPERATIONS.items():
            drawn = _drawn()
            expected = compute(*(x.to(dtype).double() for x in drawn))
            error = _relative(compute(*(x.to(device, dtype) for x in drawn)).cpu().double(), expected)
            numbers[f"{operation}, {name}"] = error
            if not error <= allowed:
                wrong.append(S_(f"{operation} in {name} errs by {error:.2g} of its result, and rounding explains {allowed:.2g} at most"))
    if wrong:
        raise CheckFailed("; ".join(wrong), numbers)
    largest = max(float(error) for name, error in numbers.items() if name.endswith("float32"))
    return S_(f"{', '.join(OPERATIONS)}: as in float64 on the CPU (float32 errs by {largest:.1g})"), numbers


def _drawn() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    left, middle, right = (torch.randn(4, 128, 128, generator=generator) for _ in range(3))
    return left, middle, right


OPERATIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "product": lambda a, b, c: a @ b,
    "softmax": lambda a, b, c: a.softmax(dim=-1),
    "log-softmax": lambda a, b, c: a.log_softmax(dim=-1),
    "layer norm": lambda a, b, c: functional.layer_norm(a, a.shape[-1:]),
    "GELU": lambda a, b, c: functional.gelu(a, approximate="tanh"),
    "attention": lambda a, b, c: functional.scaled_dot_product_attention(a[:, None], b[:, None], c[:, None], is_causal=True),
}
"""What a transformer is made of; each takes three tensors (4, 128, 128)."""


def _relative(numbers: Tensor, expected: Tensor) -> float:
    return float((numbers - expected).square().mean().sqrt() / expected.square().mean().sqrt())


def check_rates(task: Task) -> tuple[str, Numbers]:
    """Operations per second of large products, and bytes per second of a copy."""
    compute = choose_compute(settings(task, "world"))
    rate, memory = multiply_rate(compute.device, 0.3 if task.quick else 1.0), copy_rate(compute.device)
    if compute.device.type == "cpu":
        threads = torch.get_num_threads()
        where = S_(f" with {threads} threads") if threads > 1 else S_(" with 1 thread")
    else:
        where = f" in {formats(task)[-1]}"
    sentence = S_(f"products {rate / 1e12:,.3g} TFLOP/s{where}, memory {memory / 1e9:,.3g} GB/s read and written")
    return sentence, {"operations per second": rate, "bytes per second": memory}


def copy_rate(device: torch.device) -> float:
    """Bytes per second, read and written, of copies on the device; the best of some, the first not counted."""
    source = torch.ones(COPIED[device.type], device=device)
    target, rates = torch.empty_like(source), []
    for _ in range(COPIES):
        started = time.perf_counter()
        target.copy_(source)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        rates.append(2 * source.numel() * source.element_size() / (time.perf_counter() - started))
    return max(rates[1:])
