"""Learning parity on the bundled world: this engine and TRL 1.12's PPOTrainer at equal settings and equal episodes.

    python -m benchmarks.trl_parity                       # 60 batches of 64, seeds 0 1 2; about fifteen minutes on two cores
    python -m benchmarks.trl_parity --seeds 0 --steps 3   # a smoke test

Each run is a process of its own. Both use the world recipe with what TRL can also do: one learning rate for policy and critic, no
gradient clipping, no value clipping (a huge range in TRL), the end token read by the reward model. Both critics are models of their
own that start from the policy with a zero head. What differs is listed in docs/from-trl.md. The final policies answer the same
held-out prompts by the same sampler and are scored by the world's own rules.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import parity
from benchmarks.speed.machine import describe
from rlhf_studio.config import RunConfig
from rlhf_studio.config.bundled import ASSETS
from rlhf_studio.config.io import apply_overrides, config_to_yaml, parse_config
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.inputs.trained import resolve

ROOT = Path(__file__).resolve().parent
EVALUATED = 256  # held-out prompts answered by each final policy
CONFIG, POLICY = "config.yaml", "policy"


@dataclass(frozen=True)
class Outcome:
    """A final policy on the held-out prompts: mean gold score and its standard error, mean reward, KL to the start in nats."""

    gold: float
    gold_error: float
    reward: float
    kl: float
    seconds: float


def shared_config(steps: int, seed: int) -> RunConfig:
    """The world recipe, limited to what both engines can do."""
    recipe = load_recipe("world").config
    changes = {
        **{"ppo.steps": str(steps), "engine.seed": str(seed), "engine.checkpoint_every": "0", "engine.watch_every": "1000000"},
        **{"ppo.max_grad_norm": "0", "ppo.critic_learning_rate": "0", "reward.components.0.append_eos": "true"},
        **{"critic.kind": "separate", "critic.start": "policy"},
    }
    return parse_config(apply_overrides(recipe.model_dump(mode="json"), changes))


# --- the two engines -----------------------------------------------------------------------------------------------------------


def train_ours(folder: Path) -> Path:
    """Run our command line; returns the folder of the final policy."""
    run = folder / "run"
    command = [sys.executable, "-m", "rlhf_studio", "train", "--config", str(folder / CONFIG), "--run-dir", str(run)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return max((run / "checkpoints").glob("step-*")) / POLICY


def train_trl(folder: Path, config: RunConfig) -> None:
    """Train with TRL in this process and save the policy."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    from rlhf_studio.engine.loop.prompts import prepare_prompts
    from rlhf_studio.inputs.prompts import read_prompts

    policy, reward = resolve(config.model.policy), resolve("bundled/world-reward")
    tokenizer = AutoTokenizer.from_pretrained(policy, padding_side="left")
    prompts = prepare_prompts(read_prompts(config.data), tokenizer, config, lambda text, fraction: None)
    critic = AutoModelForSequenceClassification.from_pretrained(policy, num_labels=1, dtype=torch.float32)
    torch.nn.init.zeros_(critic.score.weight)
    trainer = PPOTrainer(
        args=PPOConfig(**trl_arguments(config), output_dir=str(folder / "trl")),
        processing_class=tokenizer,
        model=AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32),
        ref_model=AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32),
        reward_model=AutoModelForSequenceClassification.from_pretrained(reward, dtype=torch.float32),
        value_model=critic,
        train_dataset=Dataset.from_dict({"input_ids": prompts.ids}),
    )
    trainer.train()
    trainer.policy_model.save_pretrained(folder / POLICY)
    tokenizer.save_pretrained(folder / POLICY)


def trl_arguments(config: RunConfig) -> dict[str, Any]:
    """TRL's options for our settings, as docs/from-trl.md maps them."""
    ppo = config.ppo
    return {
        **{"per_device_train_batch_size": ppo.batch_size, "gradient_accumulation_steps": 1},
        **{"num_mini_batches": ppo.batch_size // ppo.mini_batch_size, "num_ppo_epochs": ppo.ppo_epochs},
        **{"total_episodes": ppo.steps * ppo.batch_size, "local_rollout_forward_batch_size": ppo.batch_size},
        **{"learning_rate": ppo.learning_rate, "lr_scheduler_type": ppo.lr_schedule, "weight_decay": ppo.weight_decay},
        **{"adam_epsilon": ppo.adam_epsilon, "optim": "adamw_torch", "kl_coef": ppo.kl_coef, "vf_coef": ppo.vf_coef},
        **{"gamma": ppo.gamma, "lam": ppo.lam, "cliprange": ppo.cliprange, "cliprange_value": ppo.cliprange_value or 1e9},
        **{"response_length": config.generation.response_length, "temperature": config.generation.temperature, "stop_token": "eos"},
        **{"seed": config.engine.seed, "num_sample_generations": 0, "save_strategy": "no", "report_to": "none", "disable_tqdm": True},
        **{"bf16": False, "use_cpu": True, "gradient_checkpointing": False, "logging_steps": 10},
    }


# --- what came of it -------------------------------------------------------------------------------------------------------------


def evaluate(policy: Path, config: RunConfig, seconds: float) -> Outcome:
    """Answer the held-out prompts with a fixed seed and score the answers."""
    import torch

    from rlhf_studio.engine.compute.device import choose_compute
    from rlhf_studio.engine.loop.build import build_trainer
    from rlhf_studio.engine.loop.generate import decode_responses, ends_with_stop, generate
    from rlhf_studio.engine.models.load_model import load_causal_lm
    from rlhf_studio.engine.models.policy import ResponseModel, to_padded
    from rlhf_studio.engine.rewards.scorer import Episodes
    from rlhf_studio.ppo import token_logprobs

    def silent(text: str, fraction: float | None) -> None:
        return None

    changes = {"model.policy": str(policy), "data.prompts": str(ASSETS / "world" / "prompts_heldout.jsonl"), "data.shuffle": "false"}
    moved = parse_config(apply_overrides(config.model_dump(mode="json"), changes))
    compute = choose_compute(moved)
    trainer, _ = build_trainer(moved, compute, silent)
    models, prompts = trainer.models, trainer.prompts.next_batch(EVALUATED)
    tokens, _ = generate(models, prompts, moved.generation, torch.Generator().manual_seed(1234))
    responses = decode_responses(models, tokens)
    episodes = Episodes(prompts.texts, responses, ends_with_stop(tokens, models.stop_ids).tolist(), tokens.lengths.tolist())
    gold = models.scorer.gold(episodes)
    reward = sum(models.scorer.parts(episodes).values())
    start = ResponseModel(load_causal_lm(config.model.policy, config.model.revision, torch.float32, silent).model).eval()
    ids = tokens.response_ids[tokens.mask]
    with torch.no_grad():
        after, before = (token_logprobs(model(tokens)[0], ids, moved.generation.temperature) for model in (models.policy, start))
    return Outcome(
        gold=float(gold.mean()),
        gold_error=float(gold.std()) / math.sqrt(len(gold)),
        reward=float(reward.mean()),
        kl=float(to_padded(after - before, tokens.mask).sum(dim=1).mean()),
        seconds=seconds,
    )


def run_once(engine: str, steps: int, seed: int, folder: Path) -> Outcome:
    """Train and evaluate one policy in processes of their own."""
    folder.mkdir(parents=True)
    config = shared_config(steps, seed)
    (folder / CONFIG).write_text(config_to_yaml(config), encoding="utf-8")
    started = time.perf_counter()
    if engine == "ours":
        policy = train_ours(folder)
    else:
        subprocess.run([sys.executable, "-m", "benchmarks.trl_parity", "--train-trl", str(folder)], check=True, stdout=subprocess.DEVNULL)
        policy = folder / POLICY
    return evaluate(policy, config, time.perf_counter() - started)


def result(ours: list[Outcome], theirs: list[Outcome], start: Outcome, seeds: list[int], steps: int) -> dict[str, Any]:
    """What docs/performance.md is made from."""
    return {
        "command": f"python -m benchmarks.trl_parity --seeds {' '.join(map(str, seeds))} --steps {steps}",
        "date": time.strftime("%Y-%m-%d"),
        "machine": describe(),
        **{"steps": steps, "seeds": seeds, "answered": EVALUATED, "start": vars(start)},
        **{"ours": [vars(outcome) for outcome in ours], "trl-1.12": [vars(outcome) for outcome in theirs]},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=60, help="batches per run")
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "parity.json", help="write the figures here")
    parser.add_argument("--train-trl", type=Path, help=argparse.SUPPRESS)  # the child process
    options = parser.parse_args()
    if options.train_trl:
        from rlhf_studio.config.io import config_from_file

        train_trl(options.train_trl, config_from_file(options.train_trl / CONFIG))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        outcomes: dict[str, list[Outcome]] = {"ours": [], "trl": []}
        for seed in options.seeds:
            for engine, done in outcomes.items():
                done.append(run_once(engine, options.steps, seed, Path(temporary) / f"{engine}-{seed}"))
                print(f"seed {seed}, {engine}: {done[-1]}", file=sys.stderr)
        config = shared_config(options.steps, 0)
        start = evaluate(Path(resolve(config.model.policy)), config, 0.0)
    results = result(outcomes["ours"], outcomes["trl"], start, options.seeds, options.steps)
    print("\n".join(parity({"parity": results})))
    options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
