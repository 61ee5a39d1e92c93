"""What the device picker offers: what this computer has, and what it has not, with the reason. Nothing is asked of the machine here."""

from __future__ import annotations

from typing import Any

from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.language import N_, _, ngettext, together
from rlhf_studio.runs.gpus import Gpu
from rlhf_studio.units import format_bytes

Json = dict[str, Any]
HELP, LISTED = N_("Where the run computes."), N_("Listed is what this computer has.")
NO_GPU = N_("No CUDA GPU was found on this computer.")
UNLISTED = N_("The GPUs of this computer could not be listed.")
SHARED = N_("One process on each, and each takes its share of every batch.")


def device_choices(gpus: tuple[Gpu, ...] | None, cpu: Device | None, cores: int | None, config_file: str) -> Json:
    """The picker's choices in order. Each sets the three settings together that say where a run computes.

    Args:
        gpus: as :func:`rlhf_studio.runs.gpus.find_gpus` gives them; None when they cannot be listed.
        cpu, cores: the processor; None for people who should learn nothing about this computer.
        config_file: what is suggested for accelerate's file.
    """
    first = _("the CPU") if not gpus else _of(gpus[0])
    on_this_computer = _("Here that is {first}.").format(first=first) if gpus is not None and cpu else ""
    return {
        "help": together(_(HELP), _(LISTED)) if cpu else _(HELP),
        "choices": [
            _choice("auto", _("Automatic"), together(_("The first GPU when there is one, else the CPU."), on_this_computer), "auto"),
            _choice("cpu", _("This computer's CPU"), _processor(cpu, cores), "cpu"),
            _one_gpu(gpus, cpu is not None),
            _all_gpus(gpus, cpu is not None),
            _choice(
                "file", _("Accelerate configuration file"),
                _("For several machines, or FSDP, which splits the weights of a model."),
                "auto", file=config_file,
            ),
        ],
    }  # fmt: skip


def _choice(name: str, title: str, detail: str, device: str, *, processes: int = 1, file: str = "", unavailable: str = "") -> Json:
    sets = {"engine.device": device, "engine.processes": processes, "engine.accelerate_config": file}
    return {"name": name, "title": title, "detail": detail, "sets": sets, "unavailable": unavailable, "gpus": []}


def _one_gpu(gpus: tuple[Gpu, ...] | None, known: bool) -> Json:
    if gpus is None:
        return _choice("gpu", _("One GPU"), together(_("The first that PyTorch finds."), _(UNLISTED) if known else ""), "cuda")
    if not gpus:
        return _choice("gpu", _("One GPU"), "", "cuda", unavailable=_(NO_GPU))
    if len(gpus) == 1:
        return _choice("gpu", _("One GPU: {name}").format(name=gpus[0].name), _memory(gpus[0]), "cuda")
    listed = [{"value": f"cuda:{gpu.index}", "title": f"{gpu.index}: {gpu.name} ({_memory(gpu)})"} for gpu in gpus]
    return {**_choice("gpu", _("One GPU"), _("{gpus} to choose from.").format(gpus=len(gpus)), "cuda:0"), "gpus": listed}


def _all_gpus(gpus: tuple[Gpu, ...] | None, known: bool) -> Json:
    if gpus is None:
        return _choice("gpus", _("All GPUs"), together(_(SHARED), _(UNLISTED) if known else ""), "cuda", processes=0)
    if len(gpus) < 2:
        return _choice("gpus", _("All GPUs"), "", "cuda", processes=0, unavailable=_("There is only one GPU.") if gpus else _(NO_GPU))
    detail = _("{gpus}. {shared} Batch and mini-batch size must be multiples of {gpus_2}.").format(
        gpus=_names(gpus), shared=_(SHARED), gpus_2=len(gpus)
    )
    return _choice("gpus", _("All {count} GPUs").format(count=len(gpus)), detail, "cuda", processes=0)


def _names(gpus: tuple[Gpu, ...]) -> str:
    """``8 × NVIDIA A100``; different ones one after the other."""
    counts: dict[str, int] = {}
    for gpu in gpus:
        counts[gpu.name] = counts.get(gpu.name, 0) + 1
    return ", ".join(f"{count} × {name}" for name, count in counts.items())


def _of(gpu: Gpu) -> str:
    return gpu.name if gpu.name.startswith("GPU ") else f"GPU {gpu.index}, {gpu.name}"


def _memory(gpu: Gpu) -> str:
    if gpu.total is None:
        return _("memory unknown")
    total = format_bytes(gpu.total)
    if gpu.free is None:
        return _("{total} of memory").format(total=total)
    number, unit = format_bytes(gpu.free).rsplit(" ", 1)
    return _("{free} of {total} free").format(free=number if total.endswith(f" {unit}") else f"{number} {unit}", total=total)


def _processor(cpu: Device | None, cores: int | None) -> str:
    if cpu is None or cpu.free is None:
        return _("Works everywhere; slow for larger models.")
    free = _("{free} of memory free; slow for larger models.").format(free=format_bytes(cpu.free))
    return free if cores is None else ngettext("{count} core, {free}", "{count} cores, {free}", cores).format(count=cores, free=free)
