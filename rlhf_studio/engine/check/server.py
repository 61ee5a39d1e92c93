"""The side of the child process: works on one check after the other, each named by a request (:mod:`rlhf_studio.child_process.serving`)."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict

from rlhf_studio.child_process.serving import Handler, IsCancelled, Json, Tell
from rlhf_studio.engine.check import examples, machine, memory, processes, quantized, resuming, rollouts, speed
from rlhf_studio.engine.check.checks import CRASHED, CheckFailed, NoDevice, NotTried, Numbers, Outcome, Task
from rlhf_studio.engine.compute.allocator import let_gpu_memory_grow

MESSAGES: tuple[type[Exception], ...] = ()
FUNCTIONS: dict[str, Callable[[Task], tuple[str, Numbers]]] = {
    "device": machine.check_device,
    "memory": memory.check_memory,
    "kernels": machine.check_kernels,
    "rates": machine.check_rates,
    "sft": examples.check_sft,
    "reward-model": examples.check_reward_model,
    "dpo": examples.check_dpo,
    "ppo": rollouts.check_ppo,
    "ppo-lora": rollouts.check_lora,
    "ppo-rloo": rollouts.check_rloo,
    "model": rollouts.check_own_model,
    "resume": resuming.check_resume,
    "quantized": quantized.check_quantized,
    "processes": processes.check_processes,
    "fsdp": processes.check_fsdp,
    "speed": speed.check_speed,
}
"""Each returns a sentence and its numbers, or raises :class:`CheckFailed`, :class:`NotTried`, or whatever its crash is."""


def handler(_waits: Callable[[], bool]) -> Handler:
    """Takes ``{"op": name, "task": ...}``; the event ``outcome`` or ``no device`` answers."""
    let_gpu_memory_grow()  # as in every run: CUDA reads it when the first check touches the device
    return _work


def _work(request: Json, tell: Tell, _is_cancelled: IsCancelled) -> None:
    try:
        tell({"event": "outcome", **asdict(outcome_of(request["op"], Task.from_json(request["task"])))})
    except NoDevice as error:
        tell({"event": "no device", "error": str(error)})


def outcome_of(name: str, task: Task) -> Outcome:
    """Do one check in this process. Raises :class:`NoDevice`."""
    started = time.perf_counter()

    def took() -> float:
        return round(time.perf_counter() - started, 2)

    try:
        sentence, numbers = FUNCTIONS[name](task)
    except NoDevice:
        raise
    except CheckFailed as error:
        return Outcome(name, "wrong", str(error), as_stored(error.numbers), took())
    except NotTried as error:
        return Outcome(name, "not tried", str(error), {}, took())
    except Exception as error:  # noqa: BLE001 - a check that crashes is reported, and the next is done
        cause = f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
        return Outcome(name, "wrong", f"{CRASHED}: {cause}", {}, took(), traceback.format_exc()[-8000:])
    return Outcome(name, "right", sentence, as_stored(numbers), took())


def as_stored(numbers: Numbers) -> Numbers:
    """The numbers as JSON can hold them: NaN and infinities as text."""
    return {name: str(x) if isinstance(x, float) and not math.isfinite(x) else x for name, x in numbers.items()}
