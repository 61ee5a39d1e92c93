"""Weights split over the processes of a ranks: FSDP2, torch's ``fully_shard``, block by block.

Each process keeps one part of every matrix, of its gradient and of the optimizer's state. Before a block computes, its matrices are
put together from everyone's parts, and freed right after; its gradients are added up, and each process keeps its own part of the sum.
accelerate starts the processes and carries the settings; its own ``prepare`` shards on GPUs only and averages gradients, while the
losses here are scaled for a sum.

A sharded weight is a ``DTensor``: what :func:`part` gives is this process's own part, an ordinary tensor.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from rlhf_studio.engine.distributed.ranks import Ranks

LAYERS_VARIABLE = "FSDP_TRANSFORMER_CLS_TO_WRAP"
"""Set by ``accelerate launch``: the classes whose modules are sharded one by one, separated by commas."""


def shard(model: nn.Module, ranks: Ranks, device: torch.device, dtype: torch.dtype) -> None:
    """Split the model's weights over the ranks, in place; each rank brings the same whole ones. Blocks compute in ``dtype``.

    A block goes to the device as it is split, so that no device ever holds the whole model.
    """
    mesh = init_device_mesh(device.type, (ranks.size,))
    names = _layer_names(model)
    blocks = [module for module in model.modules() if type(module).__name__ in names]
    # Inner modules first. The outermost one holds what is in no block: embeddings, last norm, output layer. It too is put together for
    # each pass only: between two passes every weight is its own part, which is what the optimizer and a checkpoint work on.
    for module in reversed(blocks):
        fully_shard(module, mesh=mesh, reshard_after_forward=True, mp_policy=_block_precision(dtype))
    fully_shard(model, mesh=mesh, reshard_after_forward=True)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def _block_precision(dtype: torch.dtype) -> MixedPrecisionPolicy:
    """In which format a block's matrices are put together; its gradients are added up in float32.

    autocast computes with the format anyway, but it would keep a converted copy of every matrix until the backward pass: the whole
    model in each process. What goes from block to block stays float32, as it does with autocast alone.
    """
    if dtype is torch.float32:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)


def _layer_names(model: nn.Module) -> set[str]:
    """As accelerate chooses them: named by a person, else those that the model's family declares."""
    chosen = os.environ.get(LAYERS_VARIABLE, "").strip()
    if chosen:
        return {name.strip() for name in chosen.split(",")}
    return {name for module in model.modules() if isinstance(module, PreTrainedModel) for name in module._no_split_modules or ()}


def is_split(x: Tensor) -> bool:
    """Whether this process holds only its part of the tensor."""
    return isinstance(x, DTensor)


def part(x: Tensor) -> Tensor:
    """What this process holds of a sharded tensor, the same memory; any other tensor as it is."""
    return x.to_local() if isinstance(x, DTensor) else x


def whole(x: Tensor, *, keep: bool = True) -> Tensor:
    """A sharded tensor put together, on the CPU; everyone must call this. ``keep`` is False where only the others need it."""
    if not isinstance(x, DTensor):
        return x
    full = x.detach().full_tensor()
    return full.cpu() if keep else full.new_empty(0)


def alike(x: Tensor, target: Tensor) -> Tensor:
    """A whole tensor, split like ``target`` without talking to the others."""
    if not isinstance(target, DTensor):
        return x
    return distribute_tensor(x.to(target.device), target.device_mesh, target.placements, src_data_rank=None)


def plain_class(model: nn.Module) -> type:
    """The model's class as it was before :func:`shard`, which puts one of its own in front."""
    kinds = type(model).__mro__
    return kinds[kinds.index(FSDPModule) + 1] if isinstance(model, FSDPModule) else kinds[0]


def whole_weights(model: nn.Module, names: Iterable[str] | None = None, *, keep: bool = True) -> dict[str, Tensor]:
    """The model's state dict, or the entries of these names, put together one by one on the CPU; tied weights stay one tensor."""
    state = model.state_dict(keep_vars=True)
    done: dict[int, Tensor] = {}
    for tensor in (state[name] for name in (state if names is None else names)):
        if id(tensor) not in done:
            done[id(tensor)] = whole(tensor, keep=keep)
    return {name: done[id(tensor)] for name, tensor in state.items() if id(tensor) in done}


def whole_state(optimizer: torch.optim.Optimizer, *, keep: bool = True) -> dict[str, Any]:
    """The optimizer's state dict with whole tensors."""
    state = optimizer.state_dict()
    entries = {index: {name: whole(x, keep=keep) for name, x in entry.items()} for index, entry in state["state"].items()}
    return {**state, "state": entries}


def total_norm(gradients: Iterable[Tensor], ranks: Ranks) -> Tensor:
    """Euclidean norm over all gradients; sharded ones count with everyone's parts."""
    gradients = list(gradients)
    local = [part(gradient) for gradient in gradients if isinstance(gradient, DTensor)]
    norm = torch.nn.utils.get_total_norm([gradient for gradient in gradients if not isinstance(gradient, DTensor)])
    if not local:
        return norm
    squares = ranks.all_reduce_sum([float(torch.nn.utils.get_total_norm(local).double().square())])[0]
    return (norm.double().square() + squares).sqrt().to(norm.dtype)


def clip(gradients: Iterable[Tensor], limit: float, norm: Tensor) -> None:
    """Scale the gradients in place so that their norm, which is ``norm`` over all processes, becomes at most ``limit``."""
    torch._foreach_mul_([part(gradient) for gradient in gradients], (limit / (norm + 1e-6)).clamp(max=1.0))
