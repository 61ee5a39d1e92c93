"""What the tests of the Train and Runs pages share: requests, small bundled models, and an engine that needs no model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file
from starlette.datastructures import Headers
from tokenizers import Tokenizer, models, pre_tokenizers

from rlhf_studio.config import bundled
from rlhf_studio.runs.liveness import StartTicket
from rlhf_studio.runs.records import StartMode
from tests.runs.store_helpers import start_process

WORDS = ["<pad>", "<end>", "<unk>", "the", "film", "was"]
PROMPT = "the film was <b>so</b> ${1+1}"
OPERATOR = SimpleNamespace(headers=Headers({"host": "127.0.0.1"}), client=SimpleNamespace(host="127.0.0.1"), query_params={})
VIEWER = SimpleNamespace(headers=Headers({"host": "lab.example"}), client=SimpleNamespace(host="10.0.0.1"), query_params={})

ENGINE = """
import sys, time
from pathlib import Path
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.writer import RunWriter
folder, total = Path(sys.argv[1]), int(sys.argv[2])
with EngineLock(folder), RunWriter(folder) as writer:
    writer.set_state("running", "", device="cpu")
    for step in range(1, total + 1):
        writer.commit_step(StepRecord(step, {"objective/scores": 0.1 * step, "objective/kl": 0.2 * step, "gold/score": 0.5}, []))
    deadline = time.monotonic() + 60
    while total > 3 and time.monotonic() < deadline and not any(command.kind == "stop" for command in writer.pending_commands()):
        time.sleep(0.05)
    writer.set_state("stopped" if total > 3 else "finished", "")
"""


def install_world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the bundled names lead to tiny files below ``folder``."""
    world = folder / "assets" / "world"
    for name, architecture in (("policy", "GPT2LMHeadModel"), ("reward", "GPT2ForSequenceClassification")):
        model = world / name
        model.mkdir(parents=True)
        config = {"architectures": [architecture], "model_type": "gpt2", "vocab_size": 6, "n_positions": 128, "id2label": {"0": "score"}}
        (model / "config.json").write_text(json.dumps(config))
        save_file({"wte.weight": np.zeros((6, 4), np.float32)}, str(model / "model.safetensors"))
        tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.save(str(model / "tokenizer.json"))
        (model / "tokenizer_config.json").write_text(json.dumps({"pad_token": "<pad>", "eos_token": "<end>"}))
    (world / "prompts.jsonl").write_text("\n".join(json.dumps({"prompt": f"{PROMPT} {row}"}) for row in range(90)))
    (world / "prompts_heldout.jsonl").write_text("\n".join(json.dumps({"prompt": f"held out {row}"}) for row in range(6)))
    monkeypatch.setattr(bundled, "ASSETS", folder / "assets")


def start_stand_in(run_dir: Path, mode: StartMode = "train", *, ticket: StartTicket) -> subprocess.Popen:
    """Start a small engine that writes steps without a model; runs of more than three steps wait for a stop."""
    from rlhf_studio.runs.reader import RunReader

    steps = RunReader(run_dir).config().planned_steps or 2  # of other stages, the examples decide
    return start_process(run_dir, ["-c", ENGINE, str(run_dir), str(min(steps, 5))], ticket)
