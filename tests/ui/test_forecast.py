"""Memory and time as the Train page shows them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlhf_studio.analysis.doctor.run_data import RunCache
from rlhf_studio.analysis.trial.figures import figures_of
from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import parse_config
from rlhf_studio.inputs.estimate.counts import RunModels
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.memory import parts
from rlhf_studio.inputs.estimate.memory.parts import HELP, MemoryPart
from rlhf_studio.inputs.estimate.memory.savings import MemorySaving
from rlhf_studio.inputs.estimate.memory.total import MemoryEstimate, estimate_memory
from rlhf_studio.inputs.models.facts import check_causal_lm
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.ui.api import answers
from rlhf_studio.ui.forecast import Estimate, estimate, memory_view
from rlhf_studio.ui.live import payloads

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


def test_time_from_a_run_is_better_than_from_the_machine(tmp_path: Path) -> None:
    def look(batch_size: int = 8, rate: tuple[float, float] | None = None) -> Estimate | None:
        config = parse_config({"ppo": {"steps": 60, "batch_size": batch_size, "mini_batch_size": 4}})
        return estimate(config, tmp_path, {}, rate=lambda: rate)

    assert look() is None
    rough = look(rate=(1.0, 4.0))
    assert rough is not None and rough.row["value"] == "1 minute to 4 minutes on this machine"
    assert "1 s to 4 s a round" in rough.row["help"] and "rough" in rough.row["help"]
    finish_run(tmp_path, parse_config({"ppo": {"batch_size": 8, "mini_batch_size": 4}}), [9.0, 2.0])
    exact = look(rate=(1.0, 9.0))
    assert exact is not None and exact.row["value"] == "about 2 minutes on this machine"
    assert exact.row["help"] == "2 s a round, measured in an earlier run with these settings."
    scaled = look(batch_size=80)
    assert scaled is not None and scaled.row["value"] == "about 20 minutes on this machine"
    assert "20 s a round, scaled" in scaled.row["help"]


def test_all_say_the_same_time_of_one_run(tmp_path: Path) -> None:
    """Live, programs, the judgement of a trial, and the plan of the same settings: 3 s a step by its newest ten, of which one was slow."""
    seconds = [60.0, *[8.0] * 19, *[3.0] * 9, 500.0]
    config = parse_config({"ppo": {"steps": 50, "batch_size": 8, "mini_batch_size": 4}})
    folder = finish_run(tmp_path, config, seconds)
    reader, series = RunReader(folder), payloads.Series()
    status = replace(reader.status(), state="running")
    series.append(reader.metrics_since(0))
    live, told = payloads.status_payload(status, series, [], {}), answers.status_of(status, reader)
    assert live["step_seconds"] == told["seconds_per_step"] == 3.0
    assert live["left"] == told["seconds_left"] == 3.0 * 20
    trial = figures_of(RunCache(reader).read(), config)
    assert trial is not None and trial.seconds == 3.0
    plan = estimate(config, tmp_path, {})
    assert plan is not None and (plan.high, plan.source) == (3.0 * 50, "earlier run")


def finish_run(root: Path, config: StageConfig, seconds: list[float]) -> Path:
    folder = root / "runs" / "20260101-000000-aaaaaa"
    create_run(folder, config, name="earlier")
    with RunWriter(folder) as writer:
        writer.plan(50)
        for step, value in enumerate(seconds, start=1):
            writer.commit_step(StepRecord(step, {"time/total": value}, []))
    return folder
