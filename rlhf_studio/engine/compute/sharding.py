"""Weights sharded over the ranks: FSDP2, torch's ``fully_shard``, block by block.

Each rank keeps one part (shard) of every matrix, of its gradient and of the optimizer's state. Before a transformer block computes, its
full matrices are gathered from all ranks, and they are freed right after. Its gradients are summed over the ranks, and each rank keeps
its own part of the sum. accelerate starts the processes and carries the settings. Its ``prepare`` is not used: it shards on GPUs only,
and it averages gradients, while the losses here are scaled for a sum.

A sharded weight is a ``DTensor``; :func:`local_part` gives this rank's part of it as an ordinary tensor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from rlhf_studio.engine.compute.ranks import Ranks

LAYERS_VARIABLE = "FSDP_TRANSFORMER_CLS_TO_WRAP"
"""Set by ``accelerate launch``: the classes whose modules are sharded one by one, separated by commas."""


def shard(model: nn.Module, ranks: Ranks, device: torch.device, dtype: torch.dtype) -> None:
    """Shard the model's weights over the ranks, in place. Every rank brings the same full weights; blocks compute in ``dtype``.

    Each block is moved to the device when it is sharded, so that no device ever holds the full model.
    """
    mesh = init_device_mesh(device.type, (ranks.size,))
    names = _layer_names(model)
    blocks = [module for module in model.modules() if type(module).__name__ in names]
    # Inner modules first. The outermost module holds what is in no block: embeddings, last norm, output layer. Its full weights too exist
    # only during a forward pass: between passes every weight is sharded, as the optimizer and the checkpoint expect.
    for module in reversed(blocks):
        fully_shard(module, mesh=mesh, reshard_after_forward=True, mp_policy=_block_precision(dtype))
    fully_shard(model, mesh=mesh, reshard_after_forward=True)
    model.as_forward = MethodType(_run_in_forward, model)  # type: ignore[assignment]
    register_fsdp_forward_method(model, "as_forward")
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


Result = TypeVar("Result", bound=Tensor)


def _run_in_forward(model: nn.Module, compute: Callable[[], Result]) -> Result:
    return compute()


def as_forward(model: nn.Module, compute: Callable[[], Result]) -> Result:
    """``compute()``, which calls parts of the model one by one, such as its trunk and its head.

    Of a sharded model, the weights that are in no block are gathered meanwhile, as they are in its own forward pass.
    """
    return model.as_forward(compute) if isinstance(model, FSDPModule) else compute()  # type: ignore[operator]


def _block_precision(dtype: torch.dtype) -> MixedPrecisionPolicy:
    """A block's full matrices are gathered in the format ``dtype``; its gradients are summed in float32.

    autocast would convert the matrices to ``dtype`` anyway, but it keeps every converted copy until the backward pass, which would be
    the full model on each rank. Hidden states between blocks stay float32, as they do with autocast alone.
    """
    if dtype is torch.float32:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)


def _layer_names(model: nn.Module) -> set[str]:
    """Class names of the modules to shard, chosen as accelerate does: from its setting, else those that the model class declares."""
    chosen = os.environ.get(LAYERS_VARIABLE, "").strip()
    if chosen:
        return {name.strip() for name in chosen.split(",")}
    return {name for module in model.modules() if isinstance(module, PreTrainedModel) for name in module._no_split_modules or ()}


def is_sharded(x: Tensor) -> bool:
    """Whether this rank holds only its part of the tensor."""
    return isinstance(x, DTensor)


def local_part(x: Tensor) -> Tensor:
    """This rank's part of a sharded tensor, sharing its memory; any other tensor as it is."""
    return x.to_local() if isinstance(x, DTensor) else x


def full_tensor(x: Tensor, *, keep: bool = True) -> Tensor:
    """The full tensor of a sharded one, on the CPU; all ranks must call this. With ``keep`` False this rank gets an empty tensor."""
    if not isinstance(x, DTensor):
        return x
    full: Tensor = x.detach().full_tensor()  # type: ignore[attr-defined]
    return full.cpu() if keep else full.new_empty(0)


def shard_like(x: Tensor, target: Tensor) -> Tensor:
    """This rank's part of a full tensor, sharded like ``target``. Every rank has the full tensor, so nothing is sent."""
    if not isinstance(target, DTensor):
        return x
    return distribute_tensor(x.to(target.device), target.device_mesh, target.placements, src_data_rank=None)


def unsharded_class(model: nn.Module) -> type:
    """The model's class before :func:`shard`: FSDP2 replaces a module's class by a subclass of ``FSDPModule`` and of that class."""
    classes = type(model).__mro__
    return classes[classes.index(FSDPModule) + 1] if isinstance(model, FSDPModule) else classes[0]


def full_state_dict(model: nn.Module, names: Iterable[str] | None = None, *, keep: bool = True) -> dict[str, Tensor]:
    """The model's state dict of full tensors, or the entries of ``names``, gathered one by one onto the CPU.

    Tied weights stay one tensor. ``keep`` as in :func:`full_tensor`.
    """
    state = model.state_dict(keep_vars=True)
    done: dict[int, Tensor] = {}
    for tensor in (state[name] for name in (state if names is None else names)):
        if id(tensor) not in done:
            done[id(tensor)] = full_tensor(tensor, keep=keep)
    return {name: done[id(tensor)] for name, tensor in state.items() if id(tensor) in done}


def full_optimizer_state(optimizer: torch.optim.Optimizer, *, keep: bool = True) -> dict[str, Any]:
    """The optimizer's state dict with full tensors; ``keep`` as in :func:`full_tensor`."""
    state = optimizer.state_dict()
    entries = {index: {name: full_tensor(x, keep=keep) for name, x in entry.items()} for index, entry in state["state"].items()}
    return {**state, "state": entries}


def gradient_norm(gradients: Iterable[Tensor], ranks: Ranks) -> Tensor:
    """Euclidean norm over all gradients; of sharded gradients, the parts of all ranks count."""
    gradients = list(gradients)
    local = [local_part(gradient) for gradient in gradients if isinstance(gradient, DTensor)]
    norm = torch.nn.utils.get_total_norm([gradient for gradient in gradients if not isinstance(gradient, DTensor)])
    if not local:
        return norm
    squares = ranks.all_reduce_sum([float(torch.nn.utils.get_total_norm(local).double().square())])[0]
    return (norm.double().square() + squares).sqrt().to(norm.dtype)


def clip_gradients(gradients: Iterable[Tensor], limit: float, norm: Tensor) -> None:
    """Scale the gradients in place so that their norm over all ranks, which is ``norm`` before, becomes at most ``limit``."""
    torch._foreach_mul_([local_part(gradient) for gradient in gradients], (limit / (norm + 1e-6)).clamp(max=1.0))
