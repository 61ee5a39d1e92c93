"""What programs ask of ``trainer.accelerator``: where to compute, and which of how many processes this is. Here it is one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch

from rlhf_studio.visible import say

NOT_SET_UP = "a program for TRL runs in one process here; start it with python, not with accelerate launch or torchrun"


@dataclass(frozen=True)
class OneProcess:
    """The part of accelerate's ``Accelerator`` that says where things are."""

    device: torch.device
    num_processes: int = 1
    process_index: int = 0
    local_process_index: int = 0
    is_main_process: bool = True
    is_local_main_process: bool = True

    def prepare(self, *things: Any) -> Any:
        """What is given, as it is."""
        return things[0] if len(things) == 1 else things

    def unwrap_model(self, model: Any) -> Any:
        """The model as it is."""
        return model

    def gather(self, values: Any) -> Any:
        """What is given: no other process has a part."""
        return values

    gather_for_metrics = gather

    def wait_for_everyone(self) -> None:
        """Nobody else is there."""

    def print(self, *words: Any) -> None:
        """Print a line."""
        say(" ".join(map(str, words)))


def refuse_several_processes() -> None:
    """Raise ValueError where this process is one of several."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ValueError(f"PPOTrainer: {NOT_SET_UP}")
