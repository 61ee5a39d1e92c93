"""Sampling with and without the captured decoding step, and the seconds of a whole step, on one GPU.

    python -m benchmarks.captured world w3 w4

Both samplings draw with the same random numbers from the same weights, so the share of equal tokens is told, too. Models are those of
``python -m rlhf_studio check``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlhf_studio.cli.engine import before_torch

before_torch()

import torch  # noqa: E402

from benchmarks.speed.ours import running  # noqa: E402
from rlhf_studio.engine.check.checks import Task  # noqa: E402
from rlhf_studio.engine.check.runs import settings  # noqa: E402
from rlhf_studio.engine.check.workloads import W3, W4, workload_settings  # noqa: E402
from rlhf_studio.engine.loop.generate import generate  # noqa: E402
from rlhf_studio.engine.types import TokenBatch  # noqa: E402

RESULT = Path(__file__).parent / "results" / "captured.json"
STEPS = 3  # the first chooses kernels and takes memory; the last is shown
PHASES = ("rollout", "score", "reference", "update", "total")


def config_of(name: str, folder: Path) -> Any:
    """The settings of ``world``, ``w3`` or ``w4`` on a CUDA GPU in bfloat16."""
    task = Task("cuda", folder)
    if name == "world":
        return settings(task, name, {"model": {"dtype": "bfloat16"}}, {"ppo": {"steps": STEPS}})
    return workload_settings(task, {"w3": W3, "w4": W4}[name], STEPS)


def measure(name: str, folder: Path) -> dict[str, Any]:
    """Seconds of a rollout in both ways, of each phase of the last step, and the peak of GPU memory."""
    config = config_of(name, folder)
    with running(config) as (trainer, writer):
        batch = trainer.prompts.batch(list(range(config.ppo.batch_size)))
        if trainer.models.traced_step is None:
            raise SystemExit(f"{name}: this GPU's captured step did not give the model's own numbers")
        ours, captured = _rollouts(trainer.models, config, batch)
        own, plain = _rollouts(replace(trainer.models, traced_step=None), config, batch)
        for _ in range(STEPS):
            record = trainer.step()
            writer.commit_step(record)
    step = {phase: record.metrics[f"time/{phase}"] for phase in PHASES}
    equal = _share_equal(ours, own)
    return {"captured": captured, "plain": plain, "equal": equal, "step": step, "peak": record.metrics["memory/peak"]}


def _rollouts(models: Any, config: Any, batch: Any) -> tuple[TokenBatch, float]:
    """The tokens, and the median seconds of two rollouts after a first one."""
    seconds = []
    for _ in range(3):
        torch.cuda.synchronize()
        began = time.perf_counter()
        tokens, _ = generate(models, batch, config.generation, torch.Generator("cuda").manual_seed(0), recorded=1)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return tokens, statistics.median(seconds[1:])


def _share_equal(ours: TokenBatch, own: TokenBatch) -> float:
    width = min(ours.mask.shape[1], own.mask.shape[1])
    both = ours.mask[:, :width] & own.mask[:, :width]
    return float((ours.response_ids[:, :width] == own.response_ids[:, :width])[both].float().mean())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=["world", "w3", "w4"])
    names = parser.parse_args().names
    with tempfile.TemporaryDirectory() as folder:
        rows = {name: measure(name, Path(folder)) for name in names}
    made = {"command": f"python -m benchmarks.captured {' '.join(names)}", "date": time.strftime("%Y-%m-%d")}
    machine = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    RESULT.write_text(json.dumps({"rows": rows, **made, **machine}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
