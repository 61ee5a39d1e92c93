"""The two workloads that are timed on a GPU: random models of known shapes, and the fewest operations that one step of them can do.

They are those of the same names in docs/performance.md.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, GPT2Config, GPTNeoXConfig, PreTrainedTokenizerFast

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import parse_config
from rlhf_studio.engine.check.checks import Task
from rlhf_studio.language import S_
from rlhf_studio.units import format_bytes

END, PAD, FIRST_WORD = 0, 1, 2
EPOCHS = 4


@dataclass(frozen=True)
class Workload:
    """Policy and reward model of one shape, all weights of the policy trained, in bfloat16; every response has ``response`` tokens.

    Attributes:
        neox: GPT-NeoX (rotary positions, an output layer of its own) rather than GPT-2.
        prompt: shortest and longest prompt in tokens.
        micro: episodes per forward pass of the update.
        memory: bytes of GPU memory, and of disk, below which it is not tried: five copies of the weights in float32 and what a step holds;
            two models.
    """

    name: str
    title: str
    neox: bool
    layers: int
    width: int
    heads: int
    vocabulary: int
    batch: int
    prompt: tuple[int, int]
    response: int
    micro: int
    memory: float
    disk: float


W3 = Workload("w3", S_("GPT-2 of 124 M weights"), False, 12, 768, 12, 50257, 128, (16, 32), 128, 128, memory=20e9, disk=2e9)
W4 = Workload("w4", S_("Pythia-1B's shape"), True, 16, 2048, 8, 50304, 64, (256, 512), 53, 16, memory=38e9, disk=10e9)


def operations(workload: Workload) -> float:
    """Floating-point operations of one step that nothing can leave out: 2 per weight and token forward, 4 backward.

    The prompt and the response are sampled, read by the reference, and learned from in each pass; the reward model reads them, too. The
    output layer counts at the response's tokens only. Attention's own products and the optimizer are not counted.
    """
    trunk, head = workload.layers * 12 * workload.width**2, workload.vocabulary * workload.width
    read = workload.batch * (sum(workload.prompt) / 2 + workload.response - 1)
    forward = 2 * (trunk * read + head * workload.batch * workload.response)
    return (2 + 3 * EPOCHS) * forward + 2 * trunk * (read + workload.batch)


def room_for(task: Task, workload: Workload) -> str:
    """Why the workload is not tried; empty where there is room for it."""
    if task.kind != "cuda":
        return S_(f"{workload.name} needs a CUDA GPU")
    free, disk = torch.cuda.mem_get_info(torch.device(task.device))[0], shutil.disk_usage(task.folder).free
    if free < workload.memory:
        return S_(f"{workload.name} needs {format_bytes(workload.memory)} of GPU memory, and {format_bytes(free)} are free")
    if disk < workload.disk:
        return S_(f"{workload.name} needs {format_bytes(workload.disk)} of disk, and {format_bytes(disk)} are free in {task.folder}")
    return ""


def workload_settings(task: Task, workload: Workload, steps: int) -> StageConfig:
    """Settings of a run of the workload; its models are made unless they are there."""
    folder = task.folder / workload.name
    if not folder.is_dir():
        part = folder.with_name(f".{folder.name}")
        shutil.rmtree(part, ignore_errors=True)
        save_models(workload, part, torch.device(task.device))
        part.rename(folder)
    policy, reward, prompts = (str(folder / name) for name in ("policy", "reward", "prompts.txt"))
    values: dict[str, Any] = {
        "model": {"policy": policy, "dtype": "bfloat16"},
        "data": {"prompts": prompts, "shuffle": False, "max_prompt_tokens": workload.prompt[1]},
        "reward": {"components": [{"kind": "reward_model", "model": reward, "batch_size": workload.batch}]},
        "ppo": {
            **{"steps": steps, "batch_size": workload.batch, "mini_batch_size": workload.batch, "micro_batch_size": workload.micro},
            **{"ppo_epochs": EPOCHS, "learning_rate": 1e-5},
        },
        "generation": {"response_length": workload.response, "stop_token": "none"},
        "engine": {"device": task.device, "checkpoint_every": 0, "record_samples": 1, "watch_prompts": 0},
    }
    return parse_config(values)


def save_models(workload: Workload, folder: Path, device: torch.device) -> None:
    """Write ``policy``, ``reward`` and ``prompts.txt`` into a new folder. One word is one token, so texts keep their length.

    Weights are drawn on the ``device``: a CPU takes a minute for two models of a billion.
    """
    words = ["<eos>", "<pad>", *(f"w{number}" for number in range(FIRST_WORD, workload.vocabulary))]
    backend = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>", padding_side="left")
    with torch.random.fork_rng(devices=[]):
        for seed, (name, kind, labels) in enumerate(
            (("policy", AutoModelForCausalLM, 0), ("reward", AutoModelForSequenceClassification, 1))
        ):
            torch.manual_seed(seed)
            with device:
                model = kind.from_config(_config(workload, labels))
            model.save_pretrained(folder / name)
            tokenizer.save_pretrained(folder / name)
    draw, (low, high) = random.Random(7), workload.prompt
    lines = (" ".join(draw.choice(words[FIRST_WORD:]) for _ in range(draw.randint(low, high))) for _ in range(4 * workload.batch))
    (folder / "prompts.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _config(workload: Workload, labels: int) -> Any:
    tokens: dict[str, Any] = {"eos_token_id": END, "pad_token_id": PAD, "vocab_size": workload.vocabulary} | (
        {"num_labels": labels} if labels else {}
    )
    if not workload.neox:
        return GPT2Config(
            **tokens, n_layer=workload.layers, n_embd=workload.width, n_head=workload.heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
        )
    sizes: dict[str, Any] = {"num_hidden_layers": workload.layers, "hidden_size": workload.width, "num_attention_heads": workload.heads}
    return GPTNeoXConfig(**tokens, **sizes, intermediate_size=4 * workload.width, hidden_dropout=0.0, attention_dropout=0.0)
