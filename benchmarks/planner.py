"""How close the memory estimate comes: the estimate before a run, and the peak that the run measured.

    python -m benchmarks.planner             # the world recipe, long dialogues, and a GPT-2 of 124 million weights with LoRA
    python -m benchmarks.planner --full      # the last also without LoRA; needs 7 GB
    python -m benchmarks.planner --policy MODEL     # instead of these a model of one's own, in four set-ups

Long dialogues are 64 prompts of 200 to 600 tokens, read by a GPT-2 of four blocks of width 128.

Every run is the real command line in its own process, for two steps. An estimate holds when the middle of its range is within a
factor of 1.5 of the measured peak.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rlhf_studio.config.io import apply_overrides, parse_config
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.inputs.preflight import inspect_run
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


LONG = {
    **{"ppo.steps": "2", "ppo.batch_size": "64", "ppo.mini_batch_size": "64", "ppo.micro_batch_size": "4", "ppo.ppo_epochs": "1"},
    **{"generation.response_length": "16", "data.max_prompt_tokens": "600", "reward.gold": "none", "reward.components": "[{kind: length}]"},
    **{"engine.checkpoint_every": "0", "engine.watch_prompts": "2"},
}


def save_gpt2(folder: Path, prompts: list[int], **sizes: int) -> dict[str, str]:
    """A random model of GPT-2's shape (12 blocks of width 768, 50257 tokens, or ``sizes``), a reward model like it, and prompts.

    The tokenizer has one token per word; ``prompts`` are lengths in tokens. Returns the settings that name them.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, PreTrainedTokenizerFast

    config = GPT2Config(bos_token_id=1, eos_token_id=1, pad_token_id=0, num_labels=1, **sizes)
    words = ["<pad>", "<eos>", *(f"w{number}" for number in range(config.vocab_size - 2))]
    backend = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<pad>"))
    backend.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>")
    for kind, model in (("policy", GPT2LMHeadModel), ("reward", GPT2ForSequenceClassification)):
        model(config).save_pretrained(folder / kind)
        tokenizer.save_pretrained(folder / kind)
    drawn = random.Random(0)
    lines = [" ".join(drawn.choices(words[2:], k=length)) for length in prompts]
    (folder / "prompts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"model.policy": str(folder / "policy"), "data.prompts": str(folder / "prompts.txt")}


def long_workloads(folder: Path) -> dict[str, dict[str, str]]:
    """Settings of the runs on long dialogues, by name."""
    drawn = random.Random(1)
    long = {**LONG, **save_gpt2(folder, [drawn.randint(200, 600) for _ in range(64)], n_embd=128, n_layer=4, n_head=4, vocab_size=2000)}
    reward_model = f"[{{kind: reward_model, model: {folder / 'reward'}, max_tokens: 700, batch_size: 32}}]"
    return {
        "long dialogues": long,
        "long dialogues, LoRA": {**long, "lora.enabled": "true"},
        "long dialogues, 8 sampled together": {**long, "generation.batch_size": "8"},
        "long dialogues, 8 together, reward model": {**long, "generation.batch_size": "8", "reward.components": reward_model},
        "long dialogues, micro-batch 32": {**long, "ppo.micro_batch_size": "32"},
        "long dialogues, micro-batch 32, LoRA": {**long, "ppo.micro_batch_size": "32", "lora.enabled": "true"},
    }


def own_workloads(policy: str, folder: Path) -> dict[str, dict[str, str]]:
    """Settings of four runs of a model of one's own: 16 prompts of 16 words, and 32 new tokens."""
    prompts = folder / "prompts.txt"
    prompts.write_text("\n".join(f"{number} words " * 8 for number in range(64)) + "\n", encoding="utf-8")
    own = {
        **{**SHORT, **SMALL_BATCH, "model.policy": policy, "data.prompts": str(prompts)},
        **{"ppo.batch_size": "16", "ppo.mini_batch_size": "8", "generation.response_length": "32", "data.max_prompt_tokens": "64"},
    }
    lora = {**own, "lora.enabled": "true"}
    return {
        "LoRA": lora,
        "LoRA, micro-batch 2": {**lora, "ppo.micro_batch_size": "2"},
        "all weights": own,
        "all weights, checkpointing": {**own, "model.gradient_checkpointing": "true"},
    }


def bundled_workloads(folder: Path, full: bool) -> dict[str, dict[str, str]]:
    """Settings of the runs of models that are made here; ``full``: also those that train 124 million weights."""
    large = {**SHORT, **SMALL_BATCH, **save_gpt2(folder / "large", [8] * 64)}
    workloads = {"world": SHORT, **long_workloads(folder / "small"), "gpt2 124M LoRA": {**large, "lora.enabled": "true"}}
    if full:
        in_lanes = {**large, "ppo.batch_size": "32", "ppo.mini_batch_size": "32"}
        workloads["gpt2 124M"] = large
        workloads["gpt2 124M, mini-batch 32"] = in_lanes
        workloads["gpt2 124M, mini-batch 32, micro-batch 8"] = {**in_lanes, "ppo.micro_batch_size": "8"}
    return workloads


def measure(name: str, settings: dict[str, str], folder: Path) -> Outcome:
    """Estimate a run, run it, and read its peak."""
    config = parse_config(apply_overrides(load_recipe("world").config.model_dump(mode="json"), settings))
    expected = inspect_run(config, folder).expected_peak
    if expected is None:
        raise SystemExit(f"{name}: no estimate")
    run_dir = folder / "runs" / name.replace(" ", "-").replace(",", "")
    options = [part for setting, value in settings.items() for part in (f"--{setting}", value)]
    command = [sys.executable, "-m", "rlhf_studio", "train", "--recipe", "world", "--run-dir", str(run_dir), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peaks = [metrics["memory/peak"] or 0.0 for _, metrics in RunReader(run_dir).metrics_since(0, limit=100)]
    return Outcome(name, *expected, max(peaks))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="also train all weights of the large model")
    parser.add_argument("--policy", default="", help="the folder of a model: measure this one alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        workloads = own_workloads(options.policy, folder) if options.policy else bundled_workloads(folder, options.full)
        outcomes = [measure(name, settings, folder) for name, settings in workloads.items()]
    print("| run | estimate (MB) | measured peak (MB) | middle / peak |")
    print("|---|---|---|---|")
    for outcome in outcomes:
        print(
            f"| {outcome.name} | {outcome.low / 1e6:,.0f} to {outcome.high / 1e6:,.0f} | {outcome.peak / 1e6:,.0f} | {outcome.ratio:.2f} |"
        )
    return 0 if all(outcome.holds for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
