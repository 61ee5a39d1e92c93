"""Make a cell: the reward model where it is not there yet, then best-of-n or PPO against it. Each cell is one small file."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, GPT2Config, GPT2LMHeadModel

from benchmarks.overoptimisation import plan
from benchmarks.overoptimisation.fits import best_of
from benchmarks.overoptimisation.plan import Cell, Size
from benchmarks.tiny_world import HELD_OUT_PROMPTS, config_of, held_out_prompts, judged_by, train_judge, world_policy
from benchmarks.world_runs import write_whole
from rlhf_studio.config import RewardTrainingConfig, SFTConfig
from rlhf_studio.config.bundled import bundled_path
from rlhf_studio.engine.compute.device import choose_compute
from rlhf_studio.engine.loop.build import build_trainer
from rlhf_studio.engine.loop.phases import sample, score
from rlhf_studio.engine.loop.trainer import Trainer
from rlhf_studio.engine.stages.reward_model.training import Preference, score_texts
from rlhf_studio.engine.stages.sft import Example, train_sft
from rlhf_studio.engine.types import PromptBatch
from rlhf_studio.inputs.world.corpus import CORPUS_SEED, write_corpus, write_prompts
from rlhf_studio.inputs.world.gold import gold_score
from rlhf_studio.lessons.world_build.build import save_model
from rlhf_studio.lessons.world_build.check import sample_responses

Rows = dict[str, Any]


def make(cell: Cell, folder: Path) -> None:
    """Leave the cell's file in the folder; what is there already stays."""
    if (place := path_of(cell, folder)).is_file():
        return
    started = time.process_time()
    judge = reward_model(cell, folder)
    made = of_best(judge, folder) if cell.method == "best of n" else of_ppo(cell, judge)
    accuracy = json.loads((judge / "accuracy.json").read_text(encoding="utf-8"))["held_out_accuracy"]
    write_whole(place, {**made, "accuracy": round(accuracy, 4), "seconds": round(time.process_time() - started, 1)})


def path_of(cell: Cell, folder: Path) -> Path:
    """Where a cell is kept."""
    return folder / "cells" / f"{cell.name}.json"


# --- reward models -------------------------------------------------------------------------------------------------------------


def reward_model(cell: Cell, folder: Path) -> Path:
    """The folder of the cell's reward model."""
    place = folder / "reward-models" / cell.judge
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    policy, tokenizer = world_policy()
    rated = own_pairs(cell.seed, folder)
    pairs = [Preference(*pair) for pair in rated[: plan.HELD_OUT_PAIRS + cell.pairs]]
    held_out, learned = pairs[: plan.HELD_OUT_PAIRS], pairs[plan.HELD_OUT_PAIRS :]
    own = [prompt + answer for prompt, *answers in rated[: plan.CALIBRATION // 2] for answer in answers]
    config = RewardTrainingConfig(epochs=2, batch_size=16, learning_rate=cell.size.rate, warmup_steps=5, weight_decay=0.01)
    base = policy if cell.size.width == policy.config.n_embd else language_model(cell.size, policy, tokenizer, folder)
    return train_judge(place, base, tokenizer, cell.size.layers, learned, held_out, config, own, cell.seed)


def language_model(size: Size, policy: Any, tokenizer: Any, folder: Path) -> Any:
    """A small model that learned to write reviews as the policy did, from fewer of them."""
    place = folder / "language-models" / size.name
    if not place.is_dir():
        shape = {"n_layer": size.layers, "n_embd": size.width, "n_head": size.heads}
        torch.manual_seed(size.width)
        model = GPT2LMHeadModel(GPT2Config.from_dict({**policy.config.to_dict(), **shape}))
        config = SFTConfig(batch_size=64, learning_rate=6e-3, lr_schedule="cosine", warmup_steps=30, weight_decay=0.01, adam_beta2=0.98)
        reviews = write_corpus(CORPUS_SEED, plan.REVIEWS)
        train_sft(model, tokenizer, [Example(review.prompt, review.response) for review in reviews], config, seed=size.width)
        unfinished = place.with_name(f"{size.name}.part")
        save_model(model, tokenizer, unfinished, padding_side="left")
        unfinished.rename(place)
    return AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32, local_files_only=True)


def own_pairs(seed: int, folder: Path) -> list[list[str]]:
    """[prompt, the answer with more gold, the one with less] of the policy, first those that are held out; none on held-out prompts."""
    place = folder / f"pairs-{seed}.json"
    if not place.is_file():
        needed = max(plan.AMOUNTS) + plan.HELD_OUT_PAIRS
        held_out = set(evaluation_prompts())
        asked = [prompt for prompt in write_prompts(1000 + seed, needed * 6 // 5) if prompt not in held_out]
        made: list[list[str]] = []
        for turn in count(10_000 * (seed + 1), 2):
            for prompt, *both in zip(asked, answers_to(asked, turn), answers_to(asked, turn + 1), strict=True):
                golds = [gold_score(prompt, answer) for answer in both]
                if golds[0] != golds[1]:
                    made.append([prompt, *(both if golds[0] > golds[1] else both[::-1])])
            if len(made) >= needed:  # equal ones are left out, so prompts may be asked again
                break
        write_whole(place, made[:needed])
    return list(json.loads(place.read_text(encoding="utf-8")))


def answers_to(prompts: Sequence[str], seed: int) -> list[str]:
    """One answer of the policy to each prompt."""
    policy, tokenizer = world_policy()
    return [answer.text for answer in sample_responses(policy, tokenizer, prompts, seed=seed, batch_size=1024, most_tokens=plan.RESPONSE)]


def evaluation_prompts() -> list[str]:
    """The 128 held-out prompts of the world."""
    lines = Path(bundled_path("bundled/world-prompts-heldout")).read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["prompt"] for line in lines]


# --- best-of-n -----------------------------------------------------------------------------------------------------------------


def own_answers(folder: Path) -> Rows:
    """Many answers of the policy to each held-out prompt, and their gold; the same for all reward models."""
    place = folder / "answers.json"
    if not place.is_file():
        prompts = [prompt for prompt in evaluation_prompts() for _ in range(plan.ANSWERS)]
        both = list(zip(prompts, answers_to(prompts, 77), strict=True))
        write_whole(place, {"texts": [prompt + text for prompt, text in both], "gold": [round(gold_score(*each), 5) for each in both]})
    return dict(json.loads(place.read_text(encoding="utf-8")))


def of_best(judge: Path, folder: Path) -> Rows:
    """Gold and proxy of the best of n, for each n the mean of each group of prompts."""
    own, tokenizer = own_answers(folder), world_policy()[1]
    model = AutoModelForSequenceClassification.from_pretrained(judge, dtype=torch.float32, local_files_only=True)
    tokenizer.padding_side = "right"
    proxy = score_texts(model, tokenizer, own["texts"]).double().numpy().reshape(HELD_OUT_PROMPTS, -1)
    gold = np.array(own["gold"]).reshape(HELD_OUT_PROMPTS, -1)
    return {
        "n": list(plan.NS),
        "gold": [in_groups(best_of(proxy, gold, n)) for n in plan.NS],
        "proxy": [round(float(best_of(proxy, proxy, n).mean()), 4) for n in plan.NS],
    }


def in_groups(per_prompt: np.ndarray) -> list[float]:
    """Means of groups of prompts."""
    return [round(float(value), 4) for value in per_prompt.reshape(plan.GROUPS, -1).mean(axis=1)]


# --- PPO -----------------------------------------------------------------------------------------------------------------------


def of_ppo(cell: Cell, judge: Path) -> Rows:
    """Gold, KL and proxy of new answers before each step and after the last. Training does not know of them."""
    quiet = {"engine.record_samples": 1, "engine.watch_prompts": 0, "engine.probe_prompts": 0, "engine.checkpoint_every": 0}
    own = {"reward.components": judged_by(judge), "ppo.kl_coef": cell.beta, "ppo.steps": plan.STEPS, "engine.seed": cell.seed}
    config = config_of({**plan.SETTINGS, **quiet, **own, "engine.threads": 1})
    trainer, _ = build_trainer(config, choose_compute(config), lambda text, fraction: None)
    asked, generator = held_out_prompts(trainer, plan.FRESH), torch.Generator().manual_seed(1_000_000 + cell.seed)
    rows = [fresh(trainer, asked, generator)]
    while not trainer.finished:
        trainer.step()
        rows.append(fresh(trainer, asked, generator))
    return {name: [row[name] for row in rows] for name in rows[0]}


def fresh(trainer: Trainer, asked: PromptBatch, generator: torch.Generator) -> Rows:
    """New answers of the policy as it is now. The KL to the starting policy is summed exactly over the vocabulary at each token."""
    models = trainer.models
    samples = sample(models, asked, generator)
    golds = [gold_score(prompt, answer) for prompt, answer in zip(asked.texts, samples.responses, strict=True)]
    kl = models.forward_pass.full_kl(models.policy, models.reference, samples.own_tokens).double()
    per_answer = (kl * samples.mask).sum(dim=1).numpy()
    proxy = float(score(models, samples).shaped.double().mean())
    return {"gold": in_groups(np.array(golds)), "kl": in_groups(per_answer), "proxy": round(proxy, 4)}
