"""Part 1: short runs of every stage on models of a few thousand weights; sums of all tensors that they leave, and their numbers."""

from __future__ import annotations

import hashlib
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import yaml

from tools.frozen.running import Checkout, write

WORDS = [f"w{number}" for number in range(28)]
STEPS, SEEDS, ARCHIVE = 4, (0, 1, 2), Path(__file__).parents[2] / "tests" / "old_version" / "0.2.0.tar.gz"
SMALL = {
    "checkpoint_every": 2,
    "keep_checkpoints": 1,
    "record_samples": 3,
    "watch_prompts": 2,
    "watch_every": 2,
    "threads": 1,
    "device": "cpu",
}
VARIANTS: dict[str, dict[str, Any]] = {  # of PPO, beside the default
    "rloo": {"ppo": {"advantage": "rloo", "responses_per_prompt": 4}},
    "grpo-loss-kl": {"ppo": {"advantage": "grpo", "responses_per_prompt": 4, "kl_placement": "loss", "kl_estimator": "k3"}},
    "separate-critic": {"critic": {"kind": "separate"}, "ppo": {"critic_warmup_steps": 1, "cliprange_value": 0.2, "lr_schedule": "cosine"}},
    "adaptive": {
        "ppo": {"kl_controller": "adaptive", "kl_horizon": 100, "entropy_coef": 0.01, "dual_clip": 3.0, "reference_ema": 0.1},
        "reward": {"scaling": "normalise", "score_clip": 3.0, "missing_eos_penalty": 1.0, "length_penalty": 0.01},
        "generation": {"top_k": 20, "top_p": 0.95, "temperature": 0.8, "response_length_min": 3},
    },
}


def write_inputs(folder: Path) -> None:
    """A policy, a reward model, prompts, demonstrations and pairs below ``folder/inputs``, the same ones at each call."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, GPT2Config

    inputs = folder / "inputs"
    inputs.mkdir(parents=True)
    sizes = {"vocab_size": len(WORDS) + 2, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 48}
    config = GPT2Config(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=1, initializer_range=0.2)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(inputs / "policy")
    config.num_labels = 1
    torch.manual_seed(1)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(inputs / "reward")
    for model in ("policy", "reward"):
        _write_tokenizer(inputs / model)
    draw = random.Random(3)

    def words(count: int) -> str:
        return " ".join(f"w{draw.randrange(1, 16)}" for _ in range(count))

    rows = [
        {"prompt": f"w{1 + number % 5} {words(2)}", "chosen": f" {words(4)}", "rejected": f" {words(3 + number % 3)}"}
        for number in range(24)
    ]
    _write_lines(inputs / "pairs.jsonl", rows)
    _write_lines(inputs / "demonstrations.jsonl", [{"prompt": row["prompt"], "completion": row["chosen"]} for row in rows])
    _write_lines(inputs / "prompts.jsonl", [{"prompt": row["prompt"]} for row in rows])


def _write_tokenizer(folder: Path) -> None:
    """One id per word; <pad> is 0, <eos> is 1."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({word: number for number, word in enumerate(["<pad>", "<eos>", *WORDS])}, unk_token="<pad>"))
    words.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", padding_side="left").save_pretrained(folder)


def _write_lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def settings_of(stage: str, *, seed: int = 0, lora: bool = False, **changes: dict[str, Any]) -> dict[str, Any]:
    """A run of four steps of PPO or of a stage that learns from examples, on what :func:`write_inputs` has written."""
    values: dict[str, Any] = {"stage": stage, "model": {"policy": "inputs/policy"}, "lora": {"enabled": lora, "r": 2}}
    values["engine"] = {**SMALL, "seed": seed}
    values["generation"] = {"response_length": 6}
    if stage == "ppo":
        values["data"] = {"prompts": "inputs/prompts.jsonl", "eval_share": 0.0}
        values["reward"] = {"components": [{"name": "score", "kind": "reward_model", "model": "inputs/reward"}]}
        values["ppo"] = {"steps": STEPS, "batch_size": 8, "mini_batch_size": 4, "ppo_epochs": 2, "learning_rate": 0.003}
    else:
        source = "demonstrations" if stage == "sft" else "pairs"
        values["data"] = {"source": f"inputs/{source}.jsonl", "max_tokens": 32, "eval_share": 0.2, "drop_duplicates": False}
        values[stage] = {"epochs": 2, "max_steps": STEPS, "batch_size": 4, "learning_rate": 0.01, "eval_every": 2}
    if stage == "reward_model":  # which writes nothing
        del values["generation"], values["engine"]["watch_prompts"]
    for section, more in changes.items():
        values[section] = {**values.get(section, {}), **more}
    return values


def cases() -> dict[str, dict[str, Any]]:
    """Every run by its name."""
    settings = {}
    for stage in ("ppo", "sft", "reward_model", "dpo"):
        for kind in ("full", "lora"):
            for seed in SEEDS:
                settings[f"{stage}-{kind}-{seed}"] = settings_of(stage, seed=seed, lora=kind == "lora")
    return {**settings, **{f"ppo-{name}": settings_of("ppo", **changes) for name, changes in VARIANTS.items()}}


def train(checkout: Checkout, name: str, settings: dict[str, Any]) -> None:
    """Train a run at ``runs/NAME`` to its end."""
    file = checkout.work / f"{name}.yaml"
    file.write_text(yaml.safe_dump(settings), encoding="utf-8")
    checkout.run_well("train", "--config", file.name, "--run-dir", f"runs/{name}")


def tensor_sums(folder: Path) -> dict[str, str]:
    """A sum of each tensor below a folder, by file and name: of its bytes, with its type and shape."""
    sums = {}
    for file in sorted(folder.rglob("*.safetensors")):
        content = file.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        for name, entry in json.loads(content[8:start]).items():
            if name != "__metadata__":
                begin, end = (start + offset for offset in entry["data_offsets"])
                digest = hashlib.sha256(content[begin:end]).hexdigest()[:24]
                sums[f"{file.relative_to(folder).as_posix()} {name}"] = f"{entry['dtype']} {entry['shape']} {digest}"
    return sums


def newest_checkpoint(run: Path) -> Path:
    """The folder of a run's last checkpoint."""
    return max((run / "checkpoints").iterdir(), key=lambda folder: folder.name)


def _numbers(checkout: Checkout, run: str) -> list[Any]:
    """What the run has recorded, by the file that its export writes: metrics and responses with every token's numbers."""
    file = checkout.work / "numbers.jsonl"
    checkout.run_well("export", run, "--jsonl", str(file), "--replace")
    return [checkout.tidy_values(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def collect(checkout: Checkout, out: Path) -> None:
    """Writes ``weights/NAME.json`` for each run."""
    write_inputs(checkout.work)
    for name, settings in cases().items():
        train(checkout, name, settings)
        checkpoint = newest_checkpoint(checkout.work / "runs" / name)
        write(out / "weights" / f"{name}.json", {"tensors": tensor_sums(checkpoint), "numbers": _numbers(checkout, f"runs/{name}")})
    for seed in SEEDS:
        _evaluate(checkout, out, seed)
    _resume(checkout, out)


def evaluate(checkout: Checkout, run: str, folder: str, seed: int, *more: str) -> str:
    """The report of an evaluation of a run's newest policy against its start, as JSON."""
    sampling = ("--prompts", "inputs/prompts.jsonl", "--count", "6", "--samples", "2", "--seed", str(seed), "--reward", "inputs/reward")
    device_and_folder = ("--engine.device", "cpu", "--run-dir", folder)
    output = checkout.run_well("evaluate", f"{run}@start", run, *sampling, *device_and_folder, "--json", *more)
    return output[output.index("{\n") :]


def _evaluate(checkout: Checkout, out: Path, seed: int) -> None:
    report = evaluate(checkout, f"runs/ppo-full-{seed}", f"runs/evaluation-{seed}", seed, "--jsonl", f"answers-{seed}.jsonl")
    answers = (checkout.work / f"answers-{seed}.jsonl").read_text(encoding="utf-8").splitlines()
    result = {"report": json.loads(report), "answers": [json.loads(line) for line in answers]}
    write(out / "weights" / f"evaluation-{seed}.json", checkout.tidy_values(result))


def unpack_archive(folder: Path) -> Path:
    """The workspace that 0.2.0 has left, unpacked to a new folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _resume(checkout: Checkout, out: Path) -> None:
    """The run that 0.2.0 has stopped in the middle goes on to its end."""
    there = Checkout(checkout.root, unpack_archive(checkout.work / "resumed"))
    there.run_well("resume", "runs/ppo-stopped")
    sums = tensor_sums(newest_checkpoint(there.work / "runs" / "ppo-stopped"))
    write(out / "weights" / "resumed.json", {"tensors": sums, "numbers": _numbers(there, "runs/ppo-stopped")})
