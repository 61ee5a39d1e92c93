"""Seconds per step from this machine's matrix rate: measured once, on demand, by a child process, and kept in the workspace."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from rlhf_studio.config import RunConfig
from rlhf_studio.inputs.estimate.counts import RunModels, parameters, rows_together
from rlhf_studio.inputs.models.facts import ModelFacts

# A step reaches between most and a quarter of the rate of one large product: small matrices, and everything beside them.
FASTEST, SLOWEST = 1.2, 4.0
LAUNCHES_PER_BLOCK = {"gpt2": (24, 46), "gpt_neox": (32, 51)}
OTHER_LAUNCHES = (45, 85)  # of a Llama, whose parts most other kinds have
"""Kernels that a GPU starts for one block in a forward pass: of whole weights, and with an adapter on every layer. These are operations
other than views, counted on a CPU while a token is sampled in bfloat16 (tests/engine/test_pretend_cuda.py)."""
SECONDS_PER_LAUNCH = 8e-6  # of a captured step; an H100 took 6e-6 for GPT-2's, its own work included (docs/performance.md, w3)


def launches_per_block(model: ModelFacts, *, adapted: bool) -> int:
    """Kernels of one block in a forward pass."""
    return LAUNCHES_PER_BLOCK.get(model.model_type, OTHER_LAUNCHES)[adapted]


class SpeedMeasurement:
    """The measurement of one workspace.

    Args:
        root: the workspace.
        start: starts the child process; replaced in tests.
    """

    def __init__(self, root: Path, start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen):
        self._root, self._start = root, start
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether a measurement is under way."""
        return self._child is not None and self._child.poll() is None

    def begin(self, device: str) -> None:
        """Start measuring, unless that is under way. Returns at once. Raises OSError when no process can be started."""
        if self.running:
            return
        self._root.mkdir(parents=True, exist_ok=True)
        command = measure_command(self._root, device)
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._child = self._start(command, cwd=Path(__file__).parents[3], **quiet)
        # nobody may ever ask whether it is running: an ended process that is not waited for stays in the table as defunct
        threading.Thread(target=self._child.wait, name="calibration", daemon=True).start()

    def rate(self, device: str) -> float | None:
        """Operations per second of the device; None before a measurement, or when its file is damaged."""
        try:
            rate = json.loads(_file(self._root, device).read_text(encoding="utf-8"))["rate"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return float(rate) if isinstance(rate, float) and math.isfinite(rate) and rate > 0 else None


def measure_command(root: Path, device: str) -> list[str]:
    """The command that measures a device and keeps its rate in the workspace ``root``."""
    return [sys.executable, "-m", "rlhf_studio.engine.compute.measure", str(_file(root, device)), device]


def _file(root: Path, device: str) -> Path:
    return root / f"machine-{device}.json"


def seconds_per_step(config: RunConfig, models: RunModels, prompt: int, device: str, rate: float) -> tuple[float, float] | None:
    """(least, most) seconds of one step; ``prompt`` is a usual prompt's length in tokens. None when a model's size is unknown.

    A token costs 2 operations per weight forward and 4 backward (2 when the weights are frozen under LoRA). It is sampled, read by
    reference, reward models and a critic of its own, and learned from once per pass.
    """
    policy, critic = models.policy, parameters(models.critic) if models.critic else 0
    count, rewards = parameters(policy), [parameters(facts) for facts in models.rewards]
    if count is None or critic is None or None in rewards or policy.shape is None:
        return None
    ppo, response = config.ppo, config.generation.response_length
    learning = (4 if config.lora.enabled else 6) * ppo.ppo_epochs
    per_token = (2 + 2 + learning) * count + (2 + 6 * ppo.ppo_epochs) * critic + 2 * sum(number or 0 for number in rewards)
    ideal = ppo.batch_size * (prompt + response) * per_token / rate
    launches = 0.0
    if device == "cuda":  # a small model is bound by starting kernels: one decoding step per token, three passes per micro-batch
        of_a_block = response * math.ceil(ppo.batch_size / rows_together(config)) * launches_per_block(policy, adapted=False)  # merged
        passes = 3 * ppo.ppo_epochs * math.ceil(ppo.batch_size / ppo.micro_batch)
        of_a_block += passes * launches_per_block(policy, adapted=config.lora.enabled)
        launches = of_a_block * policy.shape.layers * SECONDS_PER_LAUNCH
    return FASTEST * ideal + launches, SLOWEST * ideal + 2 * launches
