"""PPO in a loop of your own, as with TRL 0.11's PPOTrainer: sample, score, step.

    pip install -r requirements.txt
    python examples/classic_ppo.py

A small model that writes film reviews learns to write short ones. Everything is bundled: no download, no GPU.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the package of this repository, also where it is not installed

from rlhf_studio.library import build_trainer  # noqa: E402

WORLD = ROOT / "assets" / "world"


def main(steps: int = 10) -> list[float]:
    """Train for so many steps; returns the mean score of each."""
    model = AutoModelForCausalLM.from_pretrained(WORLD / "policy")
    tokenizer = AutoTokenizer.from_pretrained(WORLD / "policy")
    lines = (WORLD / "prompts.jsonl").read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(line)["prompt"] for line in lines]
    ppo = {"steps": steps, "batch_size": 32, "mini_batch_size": 16, "learning_rate": 2e-4, "critic_learning_rate": 2e-3}
    ppo |= {"vf_coef": 0.5, "cliprange_value": 0.0, "kl_coef": 0.05}
    trainer = build_trainer(model, tokenizer, prompts, settings={"ppo": ppo, "generation": {"response_length": 24}})
    means = []
    for step in range(steps):
        queries = [prompts[(32 * step + place) % len(prompts)] for place in range(32)]
        rollout = trainer.sample(queries)
        scores = [-len(response.split()) / 5 for response in rollout.responses]
        stats = trainer.step(rollout, scores)
        means.append(stats["objective/scores"])
        print(f"step {step + 1}: score {means[-1]:.2f}, KL {stats['objective/kl']:.2f}")
    return means


if __name__ == "__main__":
    main()
