"""What can be known of a GPU without one: no run mixes devices, and what a decoding step asks a device to do."""

from __future__ import annotations

import copy
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM

from rlhf_studio.config import NOTHING_ALLOWED, GenerationConfig, LoraConfig
from rlhf_studio.engine.compute import allocator
from rlhf_studio.engine.models.adapters import add_lora
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.sampling.decode import sample_responses
from rlhf_studio.inputs.estimate.speed import LAUNCHES_PER_BLOCK, OTHER_LAUNCHES
from rlhf_studio.jobs.talk.answer import TypedPrompt, answer
from rlhf_studio.jobs.talk.loaded_policies import LoadedPolicies
from rlhf_studio.runs.create import create_run
from tests.engine.conftest import small_config
from tests.engine.on_pretend_cuda import play_on_pretend_cuda
from tests.engine.small_models import save_policy

NO_KERNEL = {
    "view", "_unsafe_view", "reshape", "t", "transpose", "permute", "unsqueeze", "squeeze", "expand", "slice", "select", "split",
    "split_with_sizes", "detach", "alias", "as_strided", "unbind", "_reshape_alias", "lift_fresh", "empty", "empty_like", "new_empty",
}  # fmt: skip


@pytest.mark.slow
def test_no_run_mixes_devices(tmp_path: Path) -> None:
    """A step or two of each on tensors that say cuda:0; weights that wait for their turn do not wait on the GPU."""
    found = play_on_pretend_cuda(tmp_path)
    assert "failure" not in found, found["failure"]
    assert {name: run["cause"] or run["state"] for name, run in found["runs"].items()} == dict.fromkeys(found["runs"], "finished")
    assert len(found["runs"]) == 5 and all("pretends" in run["device"] for run in found["runs"].values())
    assert found["told"] == ["begin", *["token"] * (len(found["told"]) - 2), "end"]
    assert found["kept"] and all(where == {"model": "cuda:0", "copy": "cpu"} for where in found["kept"])
    assert (found["float32 products"], found["allocator"]) == ("highest", "expandable_segments:True")


def test_what_a_person_has_set_for_the_allocator_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in allocator.ALLOCATOR_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64")
    allocator.let_gpu_memory_grow()
    assert "PYTORCH_CUDA_ALLOC_CONF" not in os.environ


# --- what a decoding step asks for ------------------------------------------------------------------------------------------------


class Counting(TorchDispatchMode):
    """Counts operations that a GPU would start a kernel for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.converted = 0  # numbers that were converted from one format to another

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if (name := func._schema.name.removeprefix("aten::")) not in NO_KERNEL:
            self.names[name] += 1
        if name == "_to_copy" and result.dtype is not args[0].dtype:
            self.converted += result.numel()
        return result


def policy_of(folder: Path, family: str, layers: int, *, adapted: bool = False, dtype: torch.dtype = torch.float32) -> Policy:
    model = AutoModelForCausalLM.from_pretrained(save_policy(folder / f"{family}{layers}", family, layers=layers), dtype=dtype)
    return Policy(add_lora(model, LoraConfig(enabled=True, r=2)) if adapted else model, nn.Linear(32, 1))


def counted(policy: Policy, tokens: int, *, merged: bool = True) -> Counting:
    """What is done while a few rows of unequal length are continued by so many tokens, in bfloat16."""
    ids, mask = torch.arange(2, 14).reshape(2, 6), torch.ones(2, 6, dtype=torch.bool)
    mask[0, :2] = False
    settings, counting = GenerationConfig(response_length=tokens), Counting()
    with policy.merged() if merged else torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16), counting:
        sample_responses(policy, ids, mask, settings, uniforms=torch.rand(2, tokens, dtype=torch.float64), stop_ids=(), pad_id=0)
    return counting


def per_token(policy: Policy, **options: bool) -> float:
    more, less = (sum(counted(policy, tokens, **options).names.values()) for tokens in (9, 5))
    return (more - less) / 4


@pytest.mark.parametrize("family", ["llama", *(pytest.param(family, marks=pytest.mark.long) for family in ("gpt2", "gpt_neox"))])
def test_what_one_block_starts(tmp_path: Path, family: str) -> None:
    """The planner's table; and adapters cost a decoding step nothing, because they are merged in bfloat16 too."""
    whole, adapted = LAUNCHES_PER_BLOCK.get(family, OTHER_LAUNCHES)
    full, lora = (
        [per_token(policy_of(tmp_path, family, layers, adapted=part, dtype=torch.bfloat16 if part else torch.float32)) for layers in (2, 6)]
        for part in (False, True)
    )
    assert (full[1] - full[0]) / 4 == pytest.approx(whole, rel=0.1)
    assert lora[1] <= full[1] * 1.02
    apart = [per_token(policy_of(tmp_path, family, layers, adapted=True, dtype=torch.bfloat16), merged=False) for layers in (2, 6)]
    assert (apart[1] - apart[0]) / 4 == pytest.approx(adapted, rel=0.1)


@pytest.mark.parametrize("family", ["gpt_neox", "llama"])
def test_keys_are_kept_in_the_format_of_the_values(tmp_path: Path, family: str) -> None:
    """The weights are float32, as those that are trained: rotated keys come as float32, and attention would convert the whole cache."""
    policy = policy_of(tmp_path, family, 2)
    cache, ids = policy.new_cache(20), torch.arange(2, 14).reshape(2, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        policy.next_logits(ids, torch.ones_like(ids), torch.arange(6).expand(2, 6), cache)
        expected = copy.deepcopy(policy.model)(input_ids=ids).past_key_values
    for layer, plain in zip(cache.layers, expected.layers, strict=True):
        assert layer.keys.dtype is layer.values.dtype is torch.bfloat16
        assert torch.equal(layer.keys, plain.keys.bfloat16()) and torch.equal(layer.values, plain.values)


def test_talking_converts_no_weights_for_a_token(tmp_path: Path) -> None:
    """Autocast keeps no copies of frozen weights: float32 matrices would be converted for every token, those of the reference too."""
    create_run(tmp_path / "run", small_config(tmp_path, "llama", model={"dtype": "bfloat16"}), name="run", state="loading")
    talker = LoadedPolicies(NOTHING_ALLOWED, lambda text, share: None).get(tmp_path / "run", None)
    weights = sum(weight.numel() for weight in talker.models.policy.model.parameters())
    converted = []
    for tokens in (4, 8):
        with Counting() as counting:
            list(answer(talker, TypedPrompt("w1 w2", True, GenerationConfig(response_length=tokens, stop_token="none"), seed=0)))
        converted.append(counting.converted)
    assert (converted[1] - converted[0]) / 4 < weights / 10
