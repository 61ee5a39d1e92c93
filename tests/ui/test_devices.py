"""What the device picker offers on machines with no, one, several and uncountable GPUs, and that each choice is what the rest accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import apply_overrides, config_from_yaml, config_to_yaml, parse_config
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.inputs.checks.accelerate_settings import default_config_file
from rlhf_studio.inputs.checks.machine import machine_problems
from rlhf_studio.inputs.estimate.device import Device, find_device
from rlhf_studio.runs import gpus as gpus_module
from rlhf_studio.runs.gpus import Gpu
from rlhf_studio.runs.processes import number_of_processes
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.command import overrides
from rlhf_studio.ui.devices import device_choices
from rlhf_studio.ui.form import nested, values_of
from rlhf_studio.ui.train_page import TrainPage
from tests.ui.train_helpers import OPERATOR, VIEWER

CPU = Device("cpu", "CPU", 31_000_000_000, 64_000_000_000, False)
A100 = tuple(Gpu(index, "NVIDIA A100", 78_000_000_000, 86_000_000_000, True) for index in range(8))
MIXED = (A100[0], Gpu(1, "NVIDIA T4", 900_000_000, 16_000_000_000, False), Gpu(2, "NVIDIA T4", None, None, False))
MACHINES: dict[str, tuple[Gpu, ...] | None] = {"none": (), "one": A100[:1], "eight": A100, "mixed": MIXED, "uncountable": None}


def choices(gpus: tuple[Gpu, ...] | None, file: str = "/home/ann/config.yaml") -> dict[str, dict[str, Any]]:
    return {choice["name"]: choice for choice in device_choices(gpus, CPU, 16, file)["choices"]}


def texts(gpus: tuple[Gpu, ...] | None) -> dict[str, tuple[str, str]]:
    """Title, and what stands below it: the reason where the choice is not available."""
    return {name: (choice["title"], choice["unavailable"] or choice["detail"]) for name, choice in choices(gpus).items()}


def test_without_a_gpu() -> None:
    reason = "No CUDA GPU was found on this computer."
    assert texts(()) == {
        "auto": ("Automatic", "The first GPU when there is one, else the CPU. Here that is the CPU."),
        "cpu": ("This computer's CPU", "16 cores, 31 GB of memory free; slow for larger models."),
        "gpu": ("One GPU", reason),
        "gpus": ("All GPUs", reason),
        "file": ("Accelerate configuration file", "For several machines, or FSDP, which splits the weights of a model."),
    }
    assert [name for name, choice in choices(()).items() if choice["unavailable"]] == ["gpu", "gpus"]


def test_with_one_gpu() -> None:
    labels = texts(A100[:1])
    assert labels["auto"][1].endswith("Here that is GPU 0, NVIDIA A100.")
    assert labels["gpu"] == ("One GPU: NVIDIA A100", "78 of 86 GB free")
    assert labels["gpus"] == ("All GPUs", "There is only one GPU.")
    assert not choices(A100[:1])["gpu"]["gpus"] and choices(A100[:1])["gpus"]["unavailable"]


def test_with_eight_gpus() -> None:
    labels, one_gpu = texts(A100), choices(A100)["gpu"]
    assert labels["gpu"] == ("One GPU", "8 to choose from.")
    assert [gpu["value"] for gpu in one_gpu["gpus"]] == [f"cuda:{index}" for index in range(8)]
    assert one_gpu["gpus"][7]["title"] == "7: NVIDIA A100 (78 of 86 GB free)"
    assert labels["gpus"] == (
        "All 8 GPUs",
        "8 × NVIDIA A100. One process on each, and each takes its share of every batch. Batch and mini-batch size must be multiples of 8.",
    )
    assert not [choice for choice in choices(A100).values() if choice["unavailable"]]


def test_gpus_that_differ_and_memory_that_is_not_known() -> None:
    titles = [gpu["title"] for gpu in choices(MIXED)["gpu"]["gpus"]]
    assert titles == ["0: NVIDIA A100 (78 of 86 GB free)", "1: NVIDIA T4 (900 MB of 16 GB free)", "2: NVIDIA T4 (memory unknown)"]
    assert texts(MIXED)["gpus"][1].startswith("1 × NVIDIA A100, 2 × NVIDIA T4. One process")
    assert texts((Gpu(0, "NVIDIA GB10", None, 128_000_000_000),))["gpu"] == ("One GPU: NVIDIA GB10", "128 GB of memory")
    assert texts((Gpu(0, "GPU 0"),))["auto"][1].endswith("Here that is GPU 0.")


def test_gpus_that_cannot_be_counted_may_be_chosen() -> None:
    labels = texts(None)
    assert labels["gpu"] == ("One GPU", "The first that PyTorch finds. The GPUs of this computer could not be listed.")
    assert labels["gpus"][0] == "All GPUs" and not [choice for choice in choices(None).values() if choice["unavailable"]]
    assert "Here" not in labels["auto"][1]


@pytest.mark.parametrize("machine", MACHINES)
def test_each_choice_is_what_the_rest_of_the_program_takes(machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each choice as a configuration: by YAML, by the command line, through the check before a start, to the device and the processes."""
    there = MACHINES[machine]
    count = None if there is None else len(there)
    world = load_recipe("world").config
    values = values_of(world) | {"ppo.batch_size": 48, "ppo.mini_batch_size": 24}
    (tmp_path / "accelerate.yaml").write_text("distributed_type: MULTI_GPU\n")
    for name, choice in choices(there, str(tmp_path / "accelerate.yaml")).items():
        config = parse_config({**nested(values | choice["sets"]), "recipe": "world"})
        assert config_from_yaml(config_to_yaml(config)) == config
        assert parse_config(apply_overrides(world.model_dump(mode="json"), overrides(config, world))) == config
        problems = [problem.message for problem in machine_problems(config, count)]
        assert bool(problems) == bool(choice["unavailable"] and count == 0), (name, problems)
        device = find_device(config.engine, lambda: there).kind
        assert device == ("cpu" if name == "cpu" or not there else "cuda")
    monkeypatch.setattr("rlhf_studio.runs.processes.find_gpus", lambda: there)
    every = RunConfig.model_validate({"engine": {"device": "cuda", "processes": choices(there)["gpus"]["sets"]["engine.processes"]}})
    assert number_of_processes(every.engine) == max(count or 1, 1)


def test_the_page_offers_this_machine_to_operators_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus_module, "has_gpu", lambda: True)
    monkeypatch.setattr(gpus_module, "_remembered", lambda: A100)
    page = TrainPage(Workspace(tmp_path), Access())
    devices = page.boot({}, OPERATOR)["devices"]
    assert [choice["title"] for choice in devices["choices"]][3] == "All 8 GPUs"
    assert devices["choices"][4]["sets"]["engine.accelerate_config"] == default_config_file()
    devices_of_viewer = json.dumps(page.boot({}, VIEWER)["devices"])
    assert (
        "A100" not in devices_of_viewer
        and "cores" not in devices_of_viewer
        and "/" not in devices_of_viewer
        and "this computer could" not in devices_of_viewer
    )
