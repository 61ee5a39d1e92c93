"""A GPU that is not there: tensors whose numbers lie on the CPU, and which say that they are on cuda:0.

Such a tensor is refused where CUDA would refuse it: in an operation with a tensor of the CPU, with the other device's random generator, and
as a numpy array. So a run of the engine shows its mistakes with devices on a machine without a GPU.
Not seen: which number formats a kernel takes, CUDA's own list of what autocast converts, and fused AdamW, which becomes the plain one.
bfloat16 is computed as autocast does on a CPU.

The process is changed for good: use it in a child process (:mod:`tests.engine.on_pretend_cuda`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

GPU = torch.device("cuda:0")
PROJECT = f"{Path(__file__).parents[2]}/"
COPIES = {"aten::copy_", "aten::_to_copy"}
INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_unsafe_index"}


class DeviceMismatch(RuntimeError):
    """What CUDA would have refused."""


def _where() -> str:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(PROJECT) and file != __file__:
            return f"{file.removeprefix(PROJECT)}:{frame.f_lineno}"
        frame = frame.f_back
    return "outside the project"


def _on_gpu(device: Any) -> bool:
    return device is not None and (isinstance(device, int) or torch.device(device).type == "cuda")


class OnGpu(Tensor):
    """A tensor that says cuda:0; ``numbers`` is the same tensor on the CPU."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, numbers: Tensor, requires_grad: bool | None = None) -> OnGpu:
        made = Tensor._make_subclass(cls, numbers.detach(), numbers.requires_grad if requires_grad is None else requires_grad)
        made.numbers = numbers.detach()
        return made

    @property
    def device(self) -> torch.device:
        return GPU

    @property
    def is_cuda(self) -> bool:
        return True

    @property
    def data(self) -> Tensor:
        return OnGpu(self.numbers, False)

    @data.setter
    def data(self, new: Tensor) -> None:
        if not isinstance(new, OnGpu):
            raise DeviceMismatch(f"the data of a tensor on {GPU} is set to a tensor on the CPU at {_where()}")
        self.numbers = new.numbers
        Tensor.data.__set__(self, new.numbers)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:
            copied = OnGpu(self.numbers.clone(), self.requires_grad)
            memo[id(self)] = nn.Parameter(copied, self.requires_grad) if isinstance(self, nn.Parameter) else copied
        return memo[id(self)]

    def tolist(self) -> Any:
        return self.numbers.tolist()

    def numpy(self, *arguments: Any, **options: Any) -> Any:
        raise TypeError(f"can't convert {GPU} device type tensor to numpy at {_where()}")

    __array__ = numpy

    def data_ptr(self) -> int:
        return self.numbers.data_ptr()

    def __repr__(self) -> str:
        return f"OnGpu({self.numbers!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func._schema.name, dict(kwargs or {})
        if func is torch.ops.prim.device.default:
            return GPU
        tensors = list(_tensors((args, kwargs)))
        _refuse_mixed(name, args, [x for x in tensors if not isinstance(x, cls)], [x for x in tensors if isinstance(x, cls)])
        if "device" in kwargs:  # autograd knows only where the numbers lie; whoever moves a tensor calls a function (see _moved)
            kwargs["device"] = torch.device("cpu")
        args_, kwargs_ = _mapped(lambda x: x.numbers if isinstance(x, cls) else x, (args, kwargs))
        result = func(*args_, **kwargs_)
        if func._schema.is_mutable:  # in place, or into ``out``: what was given is what comes back
            given = kwargs.get("out", args[0])
            return given if isinstance(given, Tensor) else result
        return _mapped(_to_gpu, result)


def _mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """``function`` of everything in tuples, lists and dictionaries. torch's own knows more kinds, and took half of a run's time."""
    if isinstance(tree, tuple | list) and not isinstance(tree, torch.Size):
        return type(tree)(_mapped(function, x) for x in tree)
    return {key: _mapped(function, x) for key, x in tree.items()} if isinstance(tree, dict) else function(tree)


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, tuple | list | dict):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from _tensors(part)


def _to_gpu(x: Any) -> Any:
    return OnGpu(x) if isinstance(x, Tensor) and not isinstance(x, OnGpu) else x


def _refuse_mixed(name: str, args: Any, on_cpu: list[Tensor], on_gpu: list[Tensor]) -> None:
    """A copy may cross, an index of the CPU may choose on the GPU, and a number of no dimension may be anywhere."""
    if not on_cpu or not on_gpu or name in COPIES:
        return
    if name in INDEXING and isinstance(args[0], OnGpu):
        on_cpu = [x for x in args[2:3] if isinstance(x, Tensor) and not isinstance(x, OnGpu)]
    if any(x.dim() > 0 for x in on_cpu):
        raise DeviceMismatch(f"{name} of tensors on the CPU {[tuple(x.shape) for x in on_cpu]} and on {GPU} at {_where()}")


class _ToGpu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return OnGpu(x.detach().clone())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.numbers if isinstance(gradient, OnGpu) else gradient


_OF_GPU: set[int] = set()  # generators that say they are the GPU's
_RealGenerator = torch.Generator


class _GeneratorType(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, _RealGenerator)


class _Generator(metaclass=_GeneratorType):
    def __new__(cls, device: Any = "cpu") -> Any:
        made = _RealGenerator()
        if _on_gpu(device):
            _OF_GPU.add(id(made))
            _KEPT.append(made)
        return made


_KEPT: list[Any] = []  # so that no id is given again


class _Functions(TorchFunctionMode):
    """Functions that name a device: those that make tensors, and those that move them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if first is not None and name in ("to", "cpu", "cuda"):
            return _moved(func, name, first, args, kwargs)
        if name == "new_tensor" and isinstance(first, OnGpu):
            return OnGpu(torch.tensor(*args[1:], dtype=kwargs.get("dtype", first.dtype)))
        if name == "pin_memory":
            return first
        device, generator = kwargs.get("device"), kwargs.get("generator")
        if generator is not None and (id(generator) in _OF_GPU) != (_on_gpu(device) or isinstance(first, OnGpu)):
            raise DeviceMismatch(f"{name} with the other device's random generator at {_where()}")
        if not _on_gpu(device):
            return func(*args, **kwargs)
        if any(isinstance(x, OnGpu) for x in args):
            return func(*args, **{key: value for key, value in kwargs.items() if key != "device"})
        return _mapped(_to_gpu, func(*args, **{**kwargs, "device": "cpu"}))


def _moved(func: Any, name: str, x: Tensor, args: Any, kwargs: Any) -> Tensor:
    """``x.to(...)``, ``x.cpu()`` or ``x.cuda()``."""
    device, dtype, copy = kwargs.get("device"), kwargs.get("dtype"), kwargs.get("copy", False)
    for argument in args[1:]:
        if isinstance(argument, torch.dtype):
            dtype = argument
        elif isinstance(argument, Tensor):
            device, dtype = argument.device, argument.dtype
        elif isinstance(argument, torch.device | str):
            device = argument
    device = {"cpu": "cpu", "cuda": GPU}.get(name, device)
    if device is None or _on_gpu(device) == isinstance(x, OnGpu):  # it stays where it is
        stays = {"dtype": dtype or x.dtype, "copy": copy}
        return x if dtype in (None, x.dtype) and not copy else Tensor.to(x, **stays)
    if isinstance(x, OnGpu):
        numbers = x.numbers.clone()
        return numbers if dtype is None else numbers.to(dtype)
    converted = x if dtype in (None, x.dtype) else Tensor.to(x, dtype)
    return _ToGpu.apply(converted) if converted.requires_grad and torch.is_grad_enabled() else OnGpu(converted.detach().clone())


def _module_to(self: nn.Module, *arguments: Any, **options: Any) -> nn.Module:
    """``nn.Module.to``: parameters of two names stay one."""
    device, dtype, _, _ = torch._C._nn._parse_to(*arguments, **options)
    done: dict[int, Any] = {}

    @torch.no_grad()
    def converted(x: Tensor) -> Tensor:
        if id(x) not in done:
            wanted = {"device": device, "dtype": dtype if dtype is not None and x.is_floating_point() else None}
            moved = x.detach().to(**{key: value for key, value in wanted.items() if value is not None})
            same = type(moved) is type(x.detach()) and moved.dtype is x.dtype
            done[id(x)] = x if same else nn.Parameter(moved, x.requires_grad) if isinstance(x, nn.Parameter) else moved
        return done[id(x)]

    for module in self.modules():
        for tensors in (module._parameters, module._buffers):
            tensors.update({name: converted(x) for name, x in tensors.items() if x is not None})
    return self


def _attention(query: Tensor, key: Tensor, *rest: Any, is_causal: bool = False, **options: Any) -> Tensor:
    """torch would make the mask of causal attention where the numbers lie."""
    if is_causal and isinstance(query, OnGpu):
        options["attn_mask"] = OnGpu(torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril())
        is_causal = False
    return _real_attention(query, key, *rest, is_causal=is_causal, **options)


_real_attention = nn.functional.scaled_dot_product_attention


def install() -> None:
    """Give this process a GPU that pretends."""
    memory = 80 << 30
    properties = type("Properties", (), {"total_memory": memory, "major": 9, "minor": 0, "name": "a GPU that pretends"})
    answers: dict[str, Any] = {
        "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0, "set_device": None, "synchronize": None,
        "empty_cache": None, "get_device_name": properties.name, "is_bf16_supported": True, "manual_seed_all": None,
        "max_memory_allocated": 1.0, "mem_get_info": (memory, memory), "get_device_properties": properties, "get_device_capability": (9, 0),
        "get_rng_state": torch.get_rng_state(), "set_rng_state": None, "reset_peak_memory_stats": None,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *_, answer=answer, **__: answer)
    autocast, adam = torch.autocast, torch.optim.AdamW

    class Autocast(autocast):
        def __init__(self, device_type: str, **options: Any):
            super().__init__("cpu" if device_type == "cuda" else device_type, **options)

    class AdamW(adam):
        def __init__(self, groups: Any, **options: Any):
            super().__init__(groups, **{**options, "fused": False, "foreach": False})

    torch.autocast, torch.optim.AdamW, torch.Generator = Autocast, AdamW, _Generator  # type: ignore[misc, assignment]
    nn.functional.scaled_dot_product_attention = _attention
    nn.Module.to = _module_to  # type: ignore[method-assign, assignment]
    nn.Module.float = lambda self: _module_to(self, torch.float32)  # type: ignore[method-assign, assignment]
    Tensor.backward = lambda self, *a, **k: torch.autograd.backward(self, *a, **k)  # type: ignore[method-assign, assignment]
    _Functions().__enter__()
