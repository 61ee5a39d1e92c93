"""Memory and time as the Train page shows them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlhf_studio.config.io import parse_config
from rlhf_studio.inputs.estimate.counts import RunModels
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.memory import parts
from rlhf_studio.inputs.estimate.memory.parts import HELP, MemoryPart
from rlhf_studio.inputs.estimate.memory.savings import MemorySaving
from rlhf_studio.inputs.estimate.memory.total import MemoryEstimate, estimate_memory
from rlhf_studio.inputs.models.facts import check_causal_lm
from rlhf_studio.runs.pace import Pace
from rlhf_studio.ui.forecast import memory_view, time_row

CPU = Device("cpu", "CPU", 4_000_000_000, 8_000_000_000, False)
PARTS = [MemoryPart("Policy", 1_130_000, 4_500_000, 4_500_000), MemoryPart("Logits", 0, 10_000_000, 2_000_000_000, lasting=False)]
CHANGE = MemorySaving("ppo.micro_batch_size", "4", 300_000_000, True, "a little slower, same result")


def test_the_table_and_the_total() -> None:
    view = memory_view(MemoryEstimate(CPU, PARTS), None)
    assert [(row["name"], row["parameters"], row["size"]) for row in view["rows"]] == [
        ("Policy", "1.1 M", "4.5 MB"),
        ("Logits", "–", "10 MB to 2.0 GB"),
    ]
    assert all(row["help"] for row in view["rows"])
    assert (view["total"], view["free"], view["state"], view["advice"]) == ("14 MB to 2.0 GB", "4.0 GB free", "fits", "")
    gpu = Device("cuda", "NVIDIA T4", 4_000_000_000, 8_000_000_000, False)
    assert memory_view(MemoryEstimate(gpu, PARTS), None)["free"] == "4.0 GB free on NVIDIA T4"


@pytest.mark.parametrize(
    ("free", "state", "start"), [(1_000_000_000, "tight", "This may not fit."), (1_000_000, "too_large", "This does not fit.")]
)
def test_advice_when_it_does_not_fit(free: int, state: str, start: str) -> None:
    memory = MemoryEstimate(replace(CPU, free=free), PARTS)
    view = memory_view(memory, CHANGE)
    assert view["state"] == state
    assert view["advice"] == f"{start} Cheapest change that fits: Micro-batch size 4 saves 300 MB (a little slower, same result)."
    assert memory_view(memory, None)["advice"] == f"{start} No single change is enough: use a smaller model, or several changes together."
    lora = MemorySaving("lora.enabled", "true", 10**9, True, "trains adapters instead of all weights")
    assert "Train with LoRA on saves 1.0 GB" in memory_view(memory, lora)["advice"]


def test_every_part_is_explained() -> None:
    reward_model, length = {"kind": "reward_model"}, {"kind": "length"}
    for components, lora in ([reward_model], True), ([length], False):
        config = parse_config({"lora": {"enabled": lora}, "reward": {"components": components}})
        policy = check_causal_lm("bundled/world-policy")
        memory = estimate_memory(config, RunModels(policy, [policy] if reward_model in components else []), CPU)
        rows = memory_view(memory, None)["rows"]
        assert len(rows) == len(memory.parts) > 8 and all(row["help"] and row["size"] for row in rows)
    named = {value for name, value in vars(parts).items() if name.isupper() and isinstance(value, str)}
    assert {part.name for part in PARTS} < named == set(HELP)  # parts that only some models have are explained too


def test_what_is_unknown_is_called_unknown() -> None:
    unknown = [MemoryPart("Policy", None, None, None), MemoryPart("Logits", None, None, None, lasting=False)]
    view = memory_view(MemoryEstimate(CPU, unknown, "unknown: the model's files do not tell the size of policy, logits"), None)
    assert view["rows"][0]["parameters"] == view["rows"][0]["size"] == "unknown"
    assert view["total"] == "Unknown: the model's files do not tell the size of policy, logits"
    assert (view["state"], view["advice"]) == ("unknown", "")
    no_figures = memory_view(MemoryEstimate(replace(CPU, free=None), PARTS), None)
    assert (no_figures["free"], no_figures["state"]) == ("", "unknown")


def test_time_from_a_run_is_better_than_from_the_machine() -> None:
    assert time_row(60, None, None) is None
    exact = time_row(60, Pace(2.0, "a", True), (1.0, 9.0))
    assert exact == {"label": "Time", "value": "about 2 minutes on this machine", "help": exact["help"]}
    assert exact["help"] == "2 s a round, measured in an earlier run with these settings."
    scaled = time_row(60, Pace(20.0, "a", False), None)
    assert scaled["value"] == "about 20 minutes on this machine" and "20 s a round, scaled" in scaled["help"]
    rough = time_row(60, None, (1.0, 4.0))
    assert rough["value"] == "1 minute to 4 minutes on this machine"
    assert "1 s to 4 s a round" in rough["help"] and "rough" in rough["help"]
