"""Synthetic runs of the stages around PPO, as :mod:`tests.ui.fake_run` is one of PPO.

Run it by hand:  python -m tests.ui.fake_stages WORKSPACE
"""

from __future__ import annotations

import argparse
import math
import random
from pathlib import Path

from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, RolloutRecord, WatchRecord
from tests.runs.stage_helpers import example, example_tokens, write_stage_run

TEXTS = [
    " moving and the cast is quietly brilliant .",
    " dull , and the ending is flat .",
    " a warm story with honest scenes .",
    " loud but still funny .",
]


def pieces_of(text: str) -> list[str]:
    """Words with the space before them."""
    return [" " + word for word in text.split()] + ["<|endoftext|>"]


def sft_run(
    workspace: Path, steps: int = 60, overfits: bool = False, state: str = "finished", name: str = "world fine-tuning"
) -> RunReader:
    """A run of supervised fine-tuning whose held-out loss falls, or turns and rises again."""
    draw = random.Random(1)
    rows = []
    for step in range(1, steps + 1):
        done = step / steps
        loss = 1.0 + 3.2 * math.exp(-4 * done) + draw.gauss(0, 0.04)
        row = {"sft/loss": loss, "sft/perplexity": math.exp(loss), "lr": 3e-3 * (1 - done), "optim/grad_norm": 0.8, "train/epoch": done}
        if step == 1 or step % 10 == 0:
            held = 1.05 + 3.2 * math.exp(-4 * done) + (1.2 * max(0.0, done - 0.5) if overfits else 0.0)
            row |= {"sft/eval_loss": held, "sft/eval_perplexity": math.exp(held)}
        rows.append(row | _costs(step))
    return write_stage_run(
        workspace,
        "sft",
        rows,
        state=state,
        name=name,
        rollouts=[_sft_example(draw, sample) for sample in range(8)],
        watched={step: _answers(draw, step) for step in (0, steps)},
        recipe="world-sft",
        sft={"max_steps": steps, "batch_size": 64},
    )


def pairs_run(workspace: Path, stage: str, steps: int = 60, name: str = "") -> RunReader:
    """A run of a reward model or of DPO, with its recorded pairs."""
    draw = random.Random(2)
    rows = []
    for step in range(1, steps + 1):
        done = 1 - math.exp(-3 * step / steps)
        share = min(1.0, 0.5 + 0.36 * done + draw.gauss(0, 0.03))
        loss = 0.693 - 0.3 * done + draw.gauss(0, 0.02)
        held = {"eval_loss": 0.693 - 0.26 * done, "eval_accuracy": 0.5 + 0.31 * done} if step == 1 or step % 10 == 0 else {}
        if stage == "dpo":
            own = {"margin": 0.9 * done, "chosen_reward": 0.2 * done - 0.1 * done**2, "rejected_reward": -0.8 * done}
        else:
            own = {"margin": 1.8 * done, "chosen_mean": 0.9 * done, "rejected_mean": -0.9 * done}
            held |= {"eval_margin": 1.6 * done} if held else {}
        row = {f"{stage}/{key}": value for key, value in {"loss": loss, "accuracy": share, **own, **held}.items()}
        rows.append(row | {"lr": 5e-4, "optim/grad_norm": 0.5} | _costs(step))
    return write_stage_run(
        workspace,
        stage,
        rows,
        name=name or stage,
        rollouts=[_side(draw, sample, stage) for sample in range(8)],
        watched={step: _answers(draw, step) for step in (0, steps)} if stage == "dpo" else None,
        events=[EventRecord("info", "reward_model_measured", "Measured on 200 held-out pairs.", measurement())]
        if stage == "reward_model"
        else [],
        recipe="world-reward" if stage == "reward_model" else "world-dpo",
        **{stage: {"max_steps": steps}},
    )


def measurement(pairs: int = 200) -> dict[str, object]:
    """What a reward model's measurement leaves behind: the scores of both responses of each held-out pair."""
    draw = random.Random(3)
    chosen = [draw.gauss(0.6, 1) for _ in range(pairs)]
    rejected = [draw.gauss(-0.6, 1) for _ in range(pairs)]
    lengths = [[float(draw.randint(8, 40)) for _ in range(pairs)] for _ in range(2)]
    return {
        "pairs": {
            "chosen": chosen,
            "rejected": rejected,
            "chosen_tokens": lengths[0],
            "rejected_tokens": lengths[1],
            "numbers": list(range(1, pairs + 1)),
            "ties": [],
            "groups": ["plot" if number % 3 else "acting" for number in range(pairs)],
            "scale": 1.0,
        }
    }


def _costs(step: int) -> dict[str, float]:
    return {
        "time/total": 0.4,
        "time/elapsed": 0.4 * step,
        "episode": 64.0 * step,
        "speed/tokens_per_second": 5200.0 + step,
        "memory/peak": 4e8,
    }


def _sft_example(draw: random.Random, sample: int) -> RolloutRecord:
    text = TEXTS[sample % len(TEXTS)]
    words = pieces_of(text)
    logprobs = [-abs(draw.gauss(0.9, 0.9)) - 0.01 for _ in words]
    entropy = [abs(draw.gauss(1.2, 0.5)) for _ in words]
    return example(sample, text, example_tokens(words, ["The", " film", " was"], logprobs=logprobs, entropy=entropy))


def _side(draw: random.Random, sample: int, stage: str) -> RolloutRecord:
    """Even: the chosen response of a pair; odd: the rejected one."""
    text = TEXTS[sample % len(TEXTS)]
    words = pieces_of(text)
    score = draw.gauss(0.8 if sample % 2 == 0 else -0.8, 0.5)
    policy = [-abs(draw.gauss(1.1, 0.8)) for _ in words]
    reference = [value - draw.gauss(0, 0.3) for value in policy]
    arrays = {"logprobs": policy, "ref_logprobs": reference, "kl": [a - b for a, b in zip(policy, reference, strict=True)]}
    tokens = example_tokens(words, ["The", " film", " was"], **arrays) if stage == "dpo" else None
    return example(sample, text, tokens, prompt=f"The film number {sample // 2} was", score=score)


def _answers(draw: random.Random, step: int) -> list[WatchRecord]:
    records = []
    for sample, prompt in enumerate(("The movie was", "Honestly, the plot", "The ending")):
        text = TEXTS[(sample + (step > 0)) % len(TEXTS)]
        words = pieces_of(text)
        arrays = example_tokens(
            words, logprobs=[-abs(draw.gauss(1, 1)) for _ in words], entropy=[abs(draw.gauss(1, 1)) for _ in words]
        ).arrays
        records.append(WatchRecord(sample, prompt, text, math.nan, None, None, True, words, arrays))
    return records


def main() -> None:
    """Write one run of each stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workspace", type=Path)
    workspace = parser.parse_args().workspace
    sft_run(workspace)
    sft_run(workspace, overfits=True, name="too many passes")
    pairs_run(workspace, "reward_model", name="world reward")
    pairs_run(workspace, "dpo", name="world DPO")


if __name__ == "__main__":
    main()
