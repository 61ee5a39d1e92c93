"""What it costs to watch TRL's GRPOTrainer: the time of a step with and without ``rlhf_studio.attach``.

    python -m benchmarks.peers trl-1.16         # once
    python -m benchmarks.attach                 # a few minutes

Both trainings alternate in one process. A small model on a CPU is the worst case: the recording costs the same beside a large one, whose
steps take a hundred times as long.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.peers import interpreter

ROOT = Path(__file__).resolve().parents[1]
STEPS, WARM_UP = 12, 2


def seconds_by_step(folder: Path, watched: bool) -> list[float]:
    """Seconds of each optimizer step, each of which has a generation batch of its own."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from rlhf_studio.attach import Studio

    class Clock(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.at: list[float] = []

        def on_step_begin(self, *args: Any, **more: Any) -> None:
            self.at.append(time.perf_counter())

    policy = str(ROOT / "assets" / "world" / "policy")
    torch.manual_seed(0)
    args = GRPOConfig(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=16,
        num_generations=4,
        max_completion_length=48,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        beta=0.05,
        disable_tqdm=True,
        gradient_checkpointing=False,
        log_level="error",
    )
    tokenizer, clock = AutoTokenizer.from_pretrained(policy), Clock()
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(policy), args=args, processing_class=tokenizer, callbacks=[clock],
        reward_funcs=[lambda completions, **more: [float(text.count("good")) for text in completions]],
        train_dataset=Dataset.from_list([{"prompt": text} for text in ("the film", "a plot", "this movie", "the cast")] * 20),
    )  # fmt: skip
    if watched:
        Studio(workspace=folder).watch(trainer)
    trainer.train()
    return [end - begin for begin, end in zip(clock.at, clock.at[1:], strict=False)][WARM_UP:]


def measure(rounds: int) -> None:
    """Print both medians, and by how much they differ."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * rounds):
        watched = number % 2 == 1
        with tempfile.TemporaryDirectory() as folder:
            times[watched] += seconds_by_step(Path(folder), watched)
    plain, own = statistics.median(times[False]), statistics.median(times[True])
    print(f"step without {plain:.4f} s, watched {own:.4f} s: {100 * (own / plain - 1):+.1f} % ({len(times[True])} steps each)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="trainings of each kind")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        measure(options.rounds)
        return 0
    command = [interpreter("trl-1.16"), "-m", "benchmarks.attach", "--here", "--rounds", str(options.rounds)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
