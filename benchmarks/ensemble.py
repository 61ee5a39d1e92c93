"""Whether an ensemble of reward models says when it does not know: its disagreement on held-out responses, and on responses unlike them.

    python -m benchmarks.ensemble                       # four reward models of the review world, seeds 0 1 2 3
    python -m benchmarks.ensemble --members 6 --rows 500

The models are trained by the real command line with the recipe world-reward; they differ in their seed alone. Disagreement of a response
is the standard deviation of its normalised scores over the models. It holds when its mean over each kind of response that the models never
learned from is above that over the held-out ones by more than two standard errors.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from rlhf_studio.config import PairsConfig
from rlhf_studio.engine.models.load_model import load_reward_model
from rlhf_studio.engine.stages.reward_training import score_texts
from rlhf_studio.inputs.examples import read_pairs
from rlhf_studio.inputs.examples.rows import Pair


def train(folder: Path, seed: int, settings: Sequence[str]) -> Path:
    """Train one member in a process of its own."""
    run_dir = folder / f"seed-{seed}"
    command = [sys.executable, "-m", "rlhf_studio", "train", "--recipe", "world-reward", "--run-dir", str(run_dir)]
    subprocess.run([*command, "--engine.seed", str(seed), *settings], check=True, stdout=subprocess.DEVNULL)
    return run_dir


def kinds(pairs: Sequence[Pair], draw: random.Random) -> dict[str, list[str]]:
    """Whole texts by kind: the held-out ones first, then those that no member has seen the like of."""
    words = sorted({word for pair in pairs for word in pair.chosen.split()})

    def changed(change: Callable[[list[str]], list[str]]) -> list[str]:
        return [f"{pair.prompt} {' '.join(change(pair.chosen.split()))}" for pair in pairs]

    return {
        "held-out responses": [pair.prompt + pair.chosen for pair in pairs],
        "their words in another order": changed(lambda own: draw.sample(own, len(own))),
        "words drawn at random": changed(lambda own: draw.choices(words, k=len(own))),
        "one word again and again": changed(lambda own: [draw.choice(words)] * len(own)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--rows", type=int, default=300, help="held-out responses")
    parser.add_argument("--pairs", type=int, default=8000, help="that each member learns from; the same for all")
    parser.add_argument("--seed", type=int, default=0, help="of the responses that are made up")
    options = parser.parse_args()
    settings = ["--data.max_rows", str(options.pairs)]
    held_out = PairsConfig(source="bundled/world-pairs-heldout", max_rows=options.rows)
    pairs = read_pairs(held_out, lambda text: None).rows
    with tempfile.TemporaryDirectory() as folder:
        runs = [train(Path(folder), seed, settings) for seed in range(options.members)]
        models = [load_reward_model(str(run), "main", "", torch.float32, lambda text, fraction: None, "models") for run in runs]
    means: dict[str, tuple[float, float]] = {}
    for kind, texts in kinds(pairs, random.Random(options.seed)).items():
        scores = torch.stack([score_texts(loaded.model, loaded.tokenizer, texts) for loaded in models])
        apart = scores.std(dim=0, correction=0)
        means[kind] = float(apart.mean()), float(apart.std()) / math.sqrt(len(apart))
        print(f"{kind:30} {means[kind][0]:.3f} ± {2 * means[kind][1]:.3f}   score {float(scores.mean()):+.2f}", flush=True)
    (usual, error), *others = means.values()
    holds = all(mean - usual > 2 * math.hypot(error, own) for mean, own in others)
    print(f"{options.members} models, {len(pairs)} responses of each kind: {'holds' if holds else 'does not hold'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
