"""What the two releases have in common: PPO's own numbers, adapters and quantization, trackers, seed."""

from __future__ import annotations

import math
import os
from pathlib import PurePath

from rlhf_studio.config.execution import TRACKERS
from rlhf_studio.language import _
from rlhf_studio.trl.draft import Draft

FILES = (".csv", ".tsv", ".jsonl", ".json", ".txt", ".parquet")


def put_core(draft: Draft) -> None:
    """The numbers of PPO that have the same name in both releases."""
    draft.same(("gamma", "ppo.gamma"), ("lam", "ppo.lam"), ("cliprange", "ppo.cliprange"), ("vf_coef", "ppo.vf_coef"))
    clip = draft.number("cliprange_value")
    draft.put("ppo.cliprange_value", clip)
    if clip == 0:
        draft.differ("cliprange_value: 0 holds the values where they were in TRL; here 0 does not clip them")
    draft.put("ppo.whiten_rewards", draft.switch("whiten_rewards"))


def put_adapters(draft: Draft) -> None:
    """LoRA and quantized weights, from ModelConfig."""
    if not draft.switch("use_peft"):
        return
    draft.put("lora.enabled", True)
    draft.put("lora.r", draft.count("lora_r"))
    draft.put("lora.alpha", draft.number("lora_alpha"))
    draft.put("lora.dropout", draft.number("lora_dropout"))
    modules = draft.value("lora_target_modules")
    if modules:
        names = modules if isinstance(modules, list) else [modules]
        draft.put("lora.target_modules", "auto" if names == ["all-linear"] else ",".join(map(str, names)))
    else:
        draft.decide.append(
            _(
                "lora_target_modules: peft chooses by the kind of model, often two layers of the attention; lora.target_modules auto is "
                "every linear layer"
            )
        )
    for theirs, ours in (("use_rslora", "lora.use_rslora"), ("use_dora", "lora.use_dora")):
        if draft.switch(theirs):
            draft.put(ours, True)
    for theirs, ours in (("load_in_8bit", "8bit"), ("load_in_4bit", "4bit")):
        if draft.switch(theirs):
            draft.put("model.quantization", ours)
    if draft.settings.get("model.quantization") == "4bit" and not draft.switch("use_bnb_nested_quant"):
        draft.differ("use_bnb_nested_quant: false there; here the constants of 4-bit blocks are quantized as well")


def put_trackers(draft: Draft, name: str) -> None:
    """The trackers that this program can report to as well; a line for each other one."""
    value = draft.value(name)
    trackers = [str(tracker) for tracker in (value if isinstance(value, list) else [value]) if tracker not in (None, "none", "")]
    known = [tracker for tracker in trackers if tracker in TRACKERS]
    draft.put("engine.report_to", ",".join(known))
    for tracker in trackers:
        if tracker not in known:
            draft.left_out.append(
                _("{name}: {tracker} is no tracker here; there are {trackers}").format(
                    name=name, tracker=tracker, trackers=", ".join(TRACKERS)
                )
            )


def is_file(name: str) -> bool:
    """Whether prompts of this name are one file: by its ending, or because it is there."""
    kinds = PurePath(name.removesuffix(".gz")).suffix.lower()
    return kinds in FILES or os.path.isfile(name)


def put_seed(draft: Draft) -> None:
    """The seed, and how many processes."""
    draft.put("engine.seed", draft.count("seed", 0))
    if draft.processes > 1:
        draft.put("engine.processes", draft.processes)


def batches(episodes: float, batch: int) -> int:
    """Batches that so many episodes take."""
    return max(1, math.ceil(episodes / batch))
