"""The memory of fine-tuning and reward-model training lies within what is estimated before. Run by hand: each trains a small model."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.small_models import save_policy

WORDS = [f"w{number}" for number in range(998)]
TRAIN = """
import json, random, sys
from pathlib import Path
import torch
torch.set_num_threads(2)
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from rlhf_studio.config.io import parse_config
from rlhf_studio.engine.compute.fused import fuse_activations
from rlhf_studio.engine.models.adapters import add_lora
from rlhf_studio.engine.stages.reward_model.training import Preference, train_reward_model
from rlhf_studio.engine.stages.sft import Example, train_sft
folder, stage, settings = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
config = parse_config(settings)
draw, words = random.Random(0), [f"w{number}" for number in range(998)]
text = lambda: " ".join(draw.choices(words, k=draw.randint(50, 200)))
tokenizer = AutoTokenizer.from_pretrained(folder)
kind = AutoModelForCausalLM if stage == "sft" else AutoModelForSequenceClassification
model = kind.from_pretrained(folder, **({} if stage == "sft" else {"num_labels": 1}))
fuse_activations(model)
model = add_lora(model, config.lora) if config.lora.enabled else model
if stage == "sft":
    rows = [Example(text(), text()) for _ in range(64)]
    train_sft(model, tokenizer, rows, config.training, seed=0, max_tokens=1024)
else:
    rows = [Preference(text(), text(), text()) for _ in range(64)]
    train_reward_model(model, tokenizer, rows, config.training, seed=0, max_tokens=1024)
print(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024)  # ru_maxrss counts who started it, too
"""


def lengths(stage: str) -> list[int]:
    """Tokens of the texts that :data:`TRAIN` draws: one for each word, and the end token of a demonstration."""
    draw, found = random.Random(0), []

    def text() -> int:
        return len(draw.choices(WORDS, k=draw.randint(50, 200)))

    for _ in range(64):
        prompt, texts = text(), [text() for _ in range(1 if stage == "sft" else 2)]
        found += [prompt + one + (stage == "sft") for one in texts]
    return sorted(found)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "micro", "lora", "dropout"),
    [
        ("sft", 16, False, 0.0),
        ("sft", 8, True, 0.0),
        ("sft", 8, False, 0.1),
        ("reward_model", 16, False, 0.0),
        ("reward_model", 8, False, 0.1),
    ],
)
def test_the_measured_peak_lies_within_the_estimate(stage: str, micro: int, lora: bool, dropout: float, tmp_path: Path) -> None:
    from rlhf_studio.config.io import parse_config
    from rlhf_studio.inputs.checks.examples import ExampleTokens
    from rlhf_studio.inputs.estimate.counts import RunModels
    from rlhf_studio.inputs.estimate.device import Device
    from rlhf_studio.inputs.estimate.supervised.memory import estimate_training_memory
    from rlhf_studio.inputs.models.facts import check_causal_lm
    from rlhf_studio.inputs.preflight.supervised import is_supervised

    folder = save_policy(tmp_path / "policy", words=WORDS, width=128, layers=4, positions=1024)
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    saved |= {"attn_pdrop": dropout, "resid_pdrop": dropout, "embd_pdrop": dropout}
    (folder / "config.json").write_text(json.dumps(saved), encoding="utf-8")
    settings = {
        "stage": stage,
        "lora": {"enabled": lora},
        "data": {"max_tokens": 1024},
        stage: {"batch_size": 32, "micro_batch_size": micro, "max_steps": 1},
        "engine": {"threads": 2} if stage == "reward_model" else {"watch_prompts": 0, "threads": 2},
    }
    config = parse_config(settings)
    assert is_supervised(config)
    tokens = ExampleTokens(tuple(lengths(stage)), sum(lengths(stage)) / 2 / len(lengths(stage)))
    cpu = Device("cpu", "CPU", 10**12, 10**12, False, cores=2)
    expected = estimate_training_memory(config, RunModels(check_causal_lm(str(folder))), cpu, tokens, 64).measured_range()
    command = [sys.executable, "-c", TRAIN, str(folder), stage, json.dumps(settings)]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "2"}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    peak = int(done.stdout)
    assert expected is not None
    print(f"{stage} micro {micro} lora {lora} dropout {dropout}: {expected[0] / 1e6:,.0f} to {expected[1] / 1e6:,.0f}, {peak / 1e6:,.0f}")
    assert expected[0] <= peak <= expected[1]
