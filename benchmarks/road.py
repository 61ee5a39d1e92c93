"""The whole road through the review world, from random weights: how long it takes, and whether each part is as good as it can be.

    python -m benchmarks.road                       # goes along a road in a workspace that is thrown away
    python -m benchmarks.road --of DIR              # judges the newest road of a workspace

The road is the real command, ``python -m rlhf_studio road world``. It holds when

- it takes at most 15 minutes;
- the fine-tuned policy's perplexity on reviews that nobody learned from is at most 5 % above that of the bundled policy;
- the reward model agrees with at least 0.95 times as many held-out preferences as a perfect one would, which the raters' mistakes limit;
- PPO raises gold as far as the main job must (benchmarks/world.py says how far that is).
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.world import read_outcome
from rlhf_studio.inputs.trained import model_of_run, resolve
from rlhf_studio.inputs.world.corpus import EVAL_SEED, appeal_of, write_corpus
from rlhf_studio.jobs.road.state import Road, list_roads
from rlhf_studio.runs.reader import RunReader

LONGEST, WORST_PERPLEXITY, LEAST_AGREEMENT = 15 * 60, 1.05, 0.95


@torch.no_grad()
def perplexity(folder: str, reviews: int) -> float:
    """Of a policy on held-out reviews: their responses and the end token behind them, given their prompts; by transformers alone."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    nats, count = 0.0, 0
    for review in write_corpus(EVAL_SEED, reviews):
        prompt, response = (tokenizer(text, add_special_tokens=False).input_ids for text in (review.prompt, review.response))
        ids = torch.tensor([[*prompt, *response, tokenizer.eos_token_id]])
        logprobs = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        nats -= float(logprobs.gather(1, ids[0, len(prompt) :, None]).sum())
        count += len(response) + 1
    return math.exp(nats / count)


def ceiling(pairs: Path) -> float:
    """Share of the pairs in which the raters' choice is the response that they like better: what a perfect reward model agrees with."""
    rows = [json.loads(line) for line in pairs.read_text(encoding="utf-8").splitlines()]
    likes = [[appeal_of(row["prompt"], row[side]) for side in ("chosen", "rejected")] for row in rows]
    return sum((chosen > rejected) + 0.5 * (chosen == rejected) for chosen, rejected in likes) / len(likes)


def judge(road: Road, workspace: Path, reviews: int) -> bool:
    """Print the road's figures; whether all of them hold."""
    runs = workspace / "runs"
    for part in road.parts:
        print(f"{part.seconds:6.0f} s  {part.title}: {part.headline}")
    seconds = sum(part.seconds for part in road.parts)
    policies = model_of_run(str(runs / road.part("sft").run)), resolve("bundled/world-policy")
    ours, bundled = (perplexity(str(folder), reviews) for folder in policies)
    rows = RunReader(runs / road.part("reward_model").run).metrics_since(0, limit=1_000_000)
    accuracy = next(row["reward_model/eval_accuracy"] for _, row in reversed(rows) if "reward_model/eval_accuracy" in row)
    most = ceiling(Path(road.part("pairs").file))
    ppo = read_outcome(runs / road.part("ppo").run, road.settings.seed, road.part("ppo").seconds)
    held = {
        f"{seconds / 60:.1f} minutes, at most {LONGEST // 60}": seconds <= LONGEST,
        f"perplexity {ours:.3f}, the bundled policy's {bundled:.3f}, ratio {ours / bundled:.3f}": ours <= WORST_PERPLEXITY * bundled,
        f"the reward model agrees with {accuracy:.1%}, a perfect one with {most:.1%}, ratio {accuracy / most:.3f}": accuracy
        >= LEAST_AGREEMENT * most,
        f"gold from {ppo.gold[0]:.2f} to {ppo.gold[1]:.2f} (± {2 * ppo.gold_error:.2f}), KL {ppo.kl:.1f}": ppo.holds,
    }
    for line, holds in held.items():
        print(f"{'holds' if holds else 'FAILS'}  {line}")
    return all(held.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", type=Path, metavar="DIR", help="a workspace with a finished road")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reviews", type=int, default=1000, help="held-out reviews that perplexity is measured on")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = options.of or Path(folder)
        if options.of is None:
            command = [sys.executable, "-m", "rlhf_studio", "road", "world", "--workspace", str(workspace), "--seed", str(options.seed)]
            subprocess.run(command, check=True)
        return 0 if judge(list_roads(workspace)[0], workspace, options.reviews) else 1


if __name__ == "__main__":
    sys.exit(main())
