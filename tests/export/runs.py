"""Small runs with checkpoints whose policies are real: a tiny random GPT-2, or an adapter on one."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

from rlhf_studio.config import RunConfig
from rlhf_studio.config.bundled import ASSETS
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, SettingChange, StepRecord, WatchRecord
from rlhf_studio.runs.writer import RunWriter
from tests.export.fakes import BAD
from tests.runs.store_helpers import NASTY_TEXTS, call, rollout, token_record

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
PROMPT = torch.tensor([[5, 9, 2, 11]])


def tiny(seed: int) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=16, n_head=2, n_positions=32, vocab_size=1236, bos_token_id=1, eos_token_id=1))


def run_with_policies(
    folder: Path,
    *,
    lora: bool,
    steps: int = 3,
    name: str = "a run",
    targets: tuple[str, ...] = ("c_attn",),
    base: Path | None = None,
    **settings: Any,
) -> dict[int, torch.Tensor]:
    """Make a run with a checkpoint of every step. Returns each one's logits for :data:`PROMPT`, computed before anything was saved.

    ``targets``: the layers that adapters change. ``base``: the folder of the adapters' base; the run's own by default.
    """
    values = {"lora": {"enabled": lora}, "generation": {"temperature": 0.7, "top_k": 5, "response_length": 9}, **settings}
    create_run(folder, RunConfig.model_validate(values), name="a run")
    call(folder, name)
    if lora and base is None:
        base = folder / "base"
        tiny(0).eval().save_pretrained(base)
    lock = EngineLock(folder)
    lock.acquire()
    logits = {}
    with RunWriter(folder) as writer:
        writer.set_state("running", device="cpu, 2 threads")
        answers = [text for text in NASTY_TEXTS if len(text) < 100] + [BAD]
        writer.watched(0, [WatchRecord(index, f"prompt {text}", f"first {text}", 0.1, None) for index, text in enumerate(answers)])
        for step in range(1, steps + 1):
            metrics = {"objective/scores": [2.0, 1.0, 0.5][step % 3], "objective/kl": 0.1 * step, "reward/=cmd": 1.0, "=evil()": -0.5}
            kept = {"logprobs": [-1.0, -0.2], "ref_logprobs": [-1.5, -0.1]}
            watched = WatchRecord(0, "prompt", "ab", 1.0, 0.5, 0.1, True, ["a", f"b{BAD}"], kept)
            rollouts = [rollout(0, prompt=BAD, tokens=token_record(3, pieces=["=1+1", BAD, "\n"]))]
            changes = [SettingChange(2, "ppo.kl_coef", 0.1, BAD)] if step == 2 else []
            writer.commit_step(StepRecord(step, metrics, rollouts, [watched], [EventRecord("info", "log", BAD)], changes=changes))
        writer.set_state("finished")
    lock.release()
    for step in range(1, steps + 1):
        logits[step] = _checkpoint(folder, step, targets if lora else (), base)
    return logits


@torch.no_grad()
def _checkpoint(folder: Path, step: int, targets: tuple[str, ...], base: Path | None) -> torch.Tensor:
    place = paths.checkpoint_dir(folder, step)
    model: Any = tiny(step) if base is None else GPT2LMHeadModel.from_pretrained(base)
    if base is not None:
        model = get_peft_model(model, LoraConfig(r=2, target_modules=list(targets), fan_in_fan_out=True, task_type="CAUSAL_LM"))
        torch.manual_seed(step)
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.3)
        model.peft_config["default"].base_model_name_or_path = str(base)
    model.eval()
    model.save_pretrained(place / "policy")
    for name in TOKENIZER:
        shutil.copyfile(ASSETS / "world" / "policy" / name, place / "policy" / name)
    (place / "value_head.safetensors").write_bytes(b"not for export")
    files = sorted(path for path in place.rglob("*") if path.is_file())
    entries = {
        str(path.relative_to(place)): {"bytes": path.stat().st_size, "sha256": sha256(path.read_bytes()).hexdigest()} for path in files
    }
    manifest = {"format": 1, "step": step, "recorded_at": RunReader(folder).recorded_at(step), "files": entries}
    (place / paths.MANIFEST).write_text(json.dumps(manifest))
    return model(PROMPT).logits
