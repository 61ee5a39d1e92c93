"""W5, the bundled world as its recipe has it: the seconds of a whole command line, start and end included.

The peers get the recipe's settings in a process of their own that loads, trains and saves the policy. What they do not do, and ours
does: score by the world's own rules, answer the watched prompts, keep every step for the Live page, write checkpoints.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.speed.job import Job
from benchmarks.speed.meter import PHASES
from benchmarks.speed.models import IDS, Inputs
from benchmarks.speed.ours import PHASE_OF
from benchmarks.speed.rounds import MODULES, OURS, Outcome, order, run_quietly
from benchmarks.speed.workloads import RECIPE, SETTINGS, Shape, Workload

NAME = "world"
NO_VALUE_CLIP = 1e9  # how TRL is told what 0 means here


def make_job(cache: Path, threads: int, recipe: str = NAME) -> Job:
    """The recipe as the peers are told it."""
    from transformers import AutoConfig

    from rlhf_studio.config.recipes import load_recipe
    from rlhf_studio.inputs.trained import resolve

    config = load_recipe(recipe).config
    policy, reward = resolve(config.model.policy), resolve(config.reward.components[0].model)
    ppo = config.ppo
    workload = Workload(
        **{"name": RECIPE, "title": f"the {recipe} recipe, whole command line", "policy": _shape(AutoConfig.from_pretrained(policy))},
        **{"reward": _shape(AutoConfig.from_pretrained(reward)), "batch": ppo.batch_size, "prompt": (1, config.data.max_prompt_tokens)},
        **{"response": config.generation.response_length, "mini": ppo.mini_batch_size, "micro": ppo.mini_batch_size},
        **{"epochs": ppo.ppo_epochs, "warm_up": 0, "updates": ppo.steps, "stops": True},
    )
    settings = {name: getattr(ppo, name) for name in SETTINGS if name not in ("temperature", "seed")}
    settings |= {"temperature": config.generation.temperature, "seed": config.engine.seed}
    settings["cliprange_value"] = settings["cliprange_value"] or NO_VALUE_CLIP
    ids, marks = _prompts(config, cache)
    return Job(workload, Inputs(policy, reward, "", ids, marks), settings, threads, probe=False)


def _shape(config: Any) -> Shape:
    return Shape(config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.vocab_size, family=config.model_type)


def _prompts(config: Any, cache: Path) -> tuple[str, dict[str, str]]:
    """The file of the prompts' token ids as our engine reads them, and the tokenizer's special tokens."""
    from transformers import AutoTokenizer

    from rlhf_studio.engine.loop.prompts import prepare_prompts
    from rlhf_studio.inputs.prompts import read_prompts
    from rlhf_studio.inputs.trained import resolve

    tokenizer = AutoTokenizer.from_pretrained(resolve(config.model.policy))
    prepared = prepare_prompts(read_prompts(config.data), tokenizer, config, lambda text, fraction: None)
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{NAME}-{IDS}"
    path.write_text(json.dumps(prepared.ids), encoding="utf-8")
    marks = {name: token for name, token in tokenizer.special_tokens_map.items() if name in ("bos_token", "eos_token", "pad_token")}
    return str(path), marks


def play(names: Sequence[str], job: Job, rounds: int, say: Callable[[str], None]) -> list[list[Outcome]]:
    """All rounds; each is a list in the order of ``names``."""
    played = []
    for number in range(rounds):
        outcomes = {name: _ours(job) if name == OURS else _peer(name, job) for name in order(names, number)}
        played.append([outcomes[name] for name in names])
        say(f"round {number + 1}: " + ", ".join(f"{outcome.contestant} {outcome.seconds['total']:.1f} s" for outcome in played[-1]))
    return played


def _ours(job: Job) -> Outcome:
    """The command line that people type."""
    import torch

    from rlhf_studio.runs.reader import RunReader

    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        command = [sys.executable, "-m", "rlhf_studio", "train", "--recipe", NAME, "--run-dir", str(run)]
        seconds = run_quietly(command, OURS, job.threads)
        rows = [metrics for _, metrics in RunReader(run).metrics_since(0, limit=1_000_000)]
    phases = dict.fromkeys(PHASES, 0.0)
    for metrics in rows:
        for name, phase in PHASE_OF.items():
            phases[phase] += metrics.get(name) or 0.0
    tokens = sum((metrics["tokens/response_length"] or 0.0) * job.workload.batch for metrics in rows)
    peak = max(metrics["memory/peak"] or 0.0 for metrics in rows)
    return _whole(OURS, job, seconds, phases, tokens, {"peak_resident": peak, "versions": {"torch": torch.__version__}})


def _peer(name: str, job: Job) -> Outcome:
    with tempfile.TemporaryDirectory() as temporary:
        job_file, result_file = Path(temporary) / "job.json", Path(temporary) / "result.json"
        job.write(job_file)
        seconds = run_quietly([str(peers.interpreter(name)), "-m", MODULES[name], str(job_file), str(result_file)], name, job.threads)
        result = json.loads(result_file.read_text(encoding="utf-8"))
    phases = {phase: sum(update[phase] for update in result["updates"]) for phase in PHASES}
    return _whole(name, job, seconds, phases, sum(result["tokens"]), result)


def _whole(name: str, job: Job, seconds: float, phases: dict[str, float], tokens: float, result: dict[str, Any]) -> Outcome:
    """A whole process as one outcome; what no phase claims, loading and saving included, is the rest."""
    rest = seconds - sum(phases.values())
    return Outcome(
        contestant=name,
        seconds={"total": seconds, **phases, "rest": rest},
        spread=(seconds, seconds),
        episodes=job.workload.batch * job.workload.updates / seconds,
        tokens=tokens / seconds,
        peak_resident=result["peak_resident"],
        peak_gpu=None,
        matrix_rate=None,
        threads=job.threads,
        device="cpu",
        versions=result["versions"],
    )
