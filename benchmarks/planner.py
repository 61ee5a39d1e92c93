"""How well the memory plan holds: the estimate before a run, and the peak that the run measured.

    python -m benchmarks.planner             # the world recipe, and a GPT-2 of 124 million weights with LoRA; about a minute
    python -m benchmarks.planner --full      # the second also without LoRA; needs 3 GB

Every run is the real command line in its own process, for two steps. A plan holds when the middle of its range is within a factor
of 1.5 of the measured peak.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rlhf_studio.config_io import apply_overrides, parse_config
from rlhf_studio.inputs.preflight import inspect_run
from rlhf_studio.recipes import load_recipe
from rlhf_studio.runs.reader import RunReader

ALLOWED = 1.5
SHORT = {"ppo.steps": "2", "engine.checkpoint_every": "0", "engine.watch_prompts": "2"}
SMALL_BATCH = {
    **{"ppo.batch_size": "8", "ppo.mini_batch_size": "4", "ppo.ppo_epochs": "1", "generation.response_length": "16"},
    **{"reward.gold": "none", "reward.components": "[{kind: length}]"},
}


@dataclass(frozen=True)
class Outcome:
    """Bytes: the estimated range and the measured peak."""

    name: str
    low: int
    high: int
    peak: float

    @property
    def ratio(self) -> float:
        return (self.low + self.high) / 2 / self.peak

    @property
    def holds(self) -> bool:
        return 1 / ALLOWED <= self.ratio <= ALLOWED


def save_gpt2(folder: Path) -> None:
    """A random model of GPT-2's shape (12 blocks of width 768, 50257 tokens) with a tokenizer of one token per word, and prompts."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    GPT2LMHeadModel(GPT2Config(bos_token_id=1, eos_token_id=1, pad_token_id=0)).save_pretrained(folder)
    words = ["<pad>", "<eos>", *(f"w{number}" for number in range(50255))]
    backend = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token="<pad>"))
    backend.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>").save_pretrained(folder)
    lines = [" ".join(f"w{row * 17 + place}" for place in range(8)) for row in range(64)]
    (folder / "prompts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(name: str, settings: dict[str, str], folder: Path) -> Outcome:
    """Plan a run, run it, and read its peak."""
    config = parse_config(apply_overrides(load_recipe("world").config.model_dump(mode="json"), settings))
    plan = inspect_run(config, folder).plan
    expected = plan.measured_range() if plan else None
    if expected is None:
        raise SystemExit(f"{name}: no plan")
    run_dir = folder / "runs" / name.replace(" ", "-")
    options = [part for setting, value in settings.items() for part in (f"--{setting}", value)]
    command = [sys.executable, "-m", "rlhf_studio", "train", "--recipe", "world", "--run-dir", str(run_dir), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peaks = [metrics["memory/peak"] or 0.0 for _, metrics in RunReader(run_dir).metrics_since(0, limit=100)]
    return Outcome(name, *expected, max(peaks))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="also train all weights of the large model")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, model = Path(temporary), Path(temporary) / "gpt2"
        save_gpt2(model)
        large = {**SHORT, **SMALL_BATCH, "model.policy": str(model), "data.prompts": str(model / "prompts.txt")}
        workloads = {"world": SHORT, "gpt2 124M LoRA": {**large, "lora.enabled": "true"}}
        if options.full:
            workloads["gpt2 124M"] = large
        outcomes = [measure(name, settings, folder) for name, settings in workloads.items()]
    print("| run | estimate (MB) | measured peak (MB) | middle / peak |")
    print("|---|---|---|---|")
    for one in outcomes:
        print(f"| {one.name} | {one.low / 1e6:,.0f} to {one.high / 1e6:,.0f} | {one.peak / 1e6:,.0f} | {one.ratio:.2f} |")
    return 0 if all(one.holds for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
