"""Kill a real engine process at random moments, resume it, and compare the final parameters with an uninterrupted run.

``python -m tests.engine.kill_loop --kills 20`` prints one line per kill; ``--stage sft`` kills runs of another stage. Each engine is forked
from this process, which has the libraries loaded already, so that most kills hit the engine's own work rather than an import.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch
from safetensors.torch import load_file

from rlhf_studio.config import Stage, StageConfig
from rlhf_studio.config.io import parse_config
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StartMode
from tests.engine.conftest import small_config
from tests.engine.stage_settings import STAGES, settings

PPO = {"steps": 24, "batch_size": 8, "mini_batch_size": 2, "ppo_epochs": 2, "kl_controller": "adaptive", "kl_horizon": 50, "kl_target": 0.5}


def fork_engine(run_dir: Path, mode: StartMode) -> int:
    """Start the engine in a child process; returns its pid."""
    child = os.fork()
    if child:
        return child
    with open(run_dir / "engine.log", "a", encoding="utf-8") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
        try:
            code = run_engine(run_dir, mode)
        except BaseException:  # noqa: BLE001 - else this copy of the process would go on above, and remove the folder that both use
            traceback.print_exc(file=log)
            code = -1
    os._exit(code)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def final_weights(run_dir: Path, steps: int) -> dict[str, torch.Tensor]:
    folder = run_dir / "checkpoints" / f"step-{steps:06d}"
    files = sorted(folder.rglob("*.safetensors"))
    return {f"{file.relative_to(folder)}:{name}": tensor for file in files for name, tensor in load_file(file).items()}


def history(run_dir: Path) -> list[tuple[int, dict[str, float | None]]]:
    """Every metric of every step that does not measure time or memory."""
    measured = ("time/", "speed/", "memory/")
    rows = RunReader(run_dir).metrics_since(0)
    return [(step, {name: value for name, value in row.items() if not name.startswith(measured)}) for step, row in rows]


def kill_once(config: StageConfig, run_dir: Path, moment: float) -> dict[str, object]:
    """Kill the engine ``moment`` seconds after its start, look at the run, resume it to the end."""
    create_run(run_dir, config, name="killed", state="loading")
    child = fork_engine(run_dir, "train")
    time.sleep(moment)
    os.kill(child, signal.SIGKILL)
    exit_code(child)
    requested_at = time.monotonic()
    while (status := RunReader(run_dir).status()).state not in ("interrupted", "finished") and time.monotonic() < requested_at + 5:
        time.sleep(0.05)
    seconds = time.monotonic() - requested_at
    # Killed before its first checkpoint: the run can only begin again.
    mode: StartMode = "from-start" if status.step and not RunReader(run_dir).checkpoints() else "resume"
    code = exit_code(fork_engine(run_dir, mode)) if status.state == "interrupted" else 0
    return {"killed_at": round(moment, 3), "step": status.step, "state": status.state, "seen_after": round(seconds, 3), "resume_exit": code}


def configured(folder: Path, stage: Stage, seed: int, lora: bool, advantage: str = "gae") -> StageConfig:
    """A run of two dozen steps or more, with a checkpoint after every fourth."""
    engine = {"checkpoint_every": 4, "seed": seed}
    adapter = {"enabled": True, "r": 4, "dropout": 0.2} if lora else {}
    if stage == "ppo":
        ppo = PPO if advantage == "gae" else {**PPO, "advantage": advantage, "responses_per_prompt": 4}
        ppo = ppo if advantage != "grpo" else {**ppo, "kl_placement": "loss", "kl_estimator": "k3"}
        return small_config(folder, ppo=ppo, lora=adapter, engine=engine, reward={"scaling": "normalise"})
    values = settings(folder, stage, epochs=6, learning_rate=0.003)
    return parse_config({**values, "lora": adapter, "engine": {**values["engine"], **engine}})


def run_loop(folder: Path, kills: int, seed: int, lora: bool, stage: Stage = "ppo", advantage: str = "gae") -> list[dict[str, object]]:
    """One uninterrupted run, then ``kills`` killed and resumed ones; each result says whether all was equal."""
    torch.set_num_threads(1)
    config = configured(folder, stage, seed, lora, advantage)
    create_run(folder / "whole", config, name="whole", state="loading")
    started = time.monotonic()
    assert exit_code(fork_engine(folder / "whole", "train")) == 0
    duration = time.monotonic() - started
    steps = RunReader(folder / "whole").status().step
    expected, wanted_history = final_weights(folder / "whole", steps), history(folder / "whole")
    moments, results = random.Random(seed), []
    for number in range(kills):
        run_dir = folder / f"killed-{number}"
        result = kill_once(config, run_dir, moments.uniform(0.0, duration))
        actual = final_weights(run_dir, steps)
        same = bool(expected) and actual.keys() == expected.keys() and all(torch.equal(actual[name], expected[name]) for name in expected)
        results.append({**result, "equal": same, "history_equal": history(run_dir) == wanted_history})
        print(json.dumps(results[-1]), flush=True)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--stage", choices=("ppo", *STAGES), default="ppo")
    parser.add_argument("--advantage", choices=("gae", "rloo", "grpo"), default="gae", help="of runs of the stage ppo")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = run_loop(Path(folder), options.kills, options.seed, options.lora, options.stage, options.advantage)
    good = [row for row in results if row["equal"] and row["history_equal"] and row["resume_exit"] == 0]
    print(f"{len(good)} of {len(results)} runs equal the uninterrupted one")
    return 0 if len(good) == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
