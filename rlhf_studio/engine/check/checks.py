"""The list of checks, what a check is given, and what it gives back. Imports no torch: the driver reads this file too."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from rlhf_studio.language import S_

Numbers = dict[str, float | str]
State = Literal["right", "wrong", "not tried"]


@dataclass(frozen=True)
class Check:
    """One entry of the list: its name, what it looks at, and the most seconds it may take before it counts as hanging."""

    name: str
    about: str
    seconds: float


CHECKS = (
    Check("device", S_("the device, its driver, the packages"), 120),
    # before all other runs: on a CPU the peak is that of the whole process
    Check("memory", S_("the planner's estimate against the measured peak"), 120),
    Check("kernels", S_("single operations against float64 on the CPU"), 60),
    Check("rates", S_("operations and bytes per second"), 60),
    Check("sft", S_("fine-tuning: two steps with the CPU's losses"), 120),
    Check("reward-model", S_("a reward model: two steps with the CPU's losses"), 120),
    Check("dpo", S_("DPO: two steps with the CPU's losses"), 120),
    Check("ppo", S_("PPO: what the device drew, read again by the CPU"), 150),
    Check("ppo-lora", S_("PPO with LoRA, and a critic with a trunk of its own"), 150),
    Check("ppo-rloo", S_("RLOO, with recomputed layers"), 150),
    Check("model", S_("PPO with LoRA on the model that --model names"), 300),
    Check("resume", S_("a run that went on from a checkpoint is the run that was not stopped"), 150),
    Check("quantized", S_("8-bit and 4-bit bases under LoRA"), 150),
    Check("processes", S_("two processes (NCCL on GPUs)"), 180),
    Check("fsdp", S_("two processes with split weights"), 180),
    Check("speed", S_("seconds per step, and the share of the device's floor"), 300),
)
CRASHED = S_("crashed")
"""Begins what is said of a check that did not come to its end by itself."""
NAMES = tuple(check.name for check in CHECKS)


@dataclass(frozen=True)
class Task:
    """What every check is given.

    Attributes:
        device: as ``engine.device``: cpu, cuda or cuda:1.
        folder: where it makes its run folders; all checks share it.
        quick: the least size at which each check still means something.
        model: a folder or a hub id for the check ``model``; empty for none.
    """

    device: str
    folder: Path
    quick: bool = False
    model: str = ""

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.device.partition(":")[0]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Task:
        return cls(**{**values, "folder": Path(values["folder"])})


class CheckFailed(Exception):
    """The device did something wrong; the message is one sentence for people."""

    def __init__(self, sentence: str, numbers: Numbers | None = None):
        super().__init__(sentence)
        self.numbers = numbers or {}


class NotTried(Exception):
    """The check does not apply here; the message says why."""


class NoDevice(Exception):
    """The device that was asked for is not there; the message is one sentence for people."""


@dataclass(frozen=True)
class Outcome:
    """What came of one check.

    Attributes:
        sentence: for people.
        numbers: what was measured, by name; ``... allowed`` are the bounds.
        seconds: how long it took.
        trace: where a check crashed: the Python trace or the last lines of the log; else empty.
    """

    name: str
    state: State
    sentence: str
    numbers: Numbers = field(default_factory=dict)
    seconds: float = 0.0
    trace: str = ""
