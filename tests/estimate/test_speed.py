"""The machine's rate: measured by a child process, read back, and turned into seconds per step."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlhf_studio.config.io import parse_config
from rlhf_studio.inputs.estimate.counts import RunModels
from rlhf_studio.inputs.estimate.speed import FASTEST, SLOWEST, SpeedMeasurement, seconds_per_step
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.shape import ModelShape
from tests.waiting import wait_until

SHAPE = ModelShape(layers=2, hidden=8, cached=16, inner=32, gated=False, vocabulary=10, tied=True)
POLICY = ModelFacts(None, "A", parameters=1000, shape=SHAPE)


class Child:
    """A process that ends when told."""

    def __init__(self) -> None:
        self.done: int | None = None

    def poll(self) -> int | None:
        return self.done

    def wait(self) -> int | None:
        return self.done


def test_one_measurement_at_a_time(tmp_path: Path) -> None:
    started: list[list[str]] = []
    child = Child()

    def start(command: list[str], **_: Any) -> Any:
        started.append(command)
        return child

    calibration = SpeedMeasurement(tmp_path / "new", start)
    assert not calibration.running
    calibration.begin("cpu")
    calibration.begin("cpu")
    assert calibration.running and len(started) == 1
    assert started[0] == [sys.executable, "-m", "rlhf_studio.engine.compute.measure", str(tmp_path / "new" / "machine-cpu.json"), "cpu"]
    child.done = 0
    assert not calibration.running
    calibration.begin("cuda")
    assert len(started) == 2


def test_an_ended_measurement_is_no_zombie(tmp_path: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(command: list[str], **given: Any) -> Any:
        started.append(subprocess.Popen([sys.executable, "-c", ""], **given))
        return started[0]

    SpeedMeasurement(tmp_path, start).begin("cpu")
    wait_until(lambda: not psutil.pid_exists(started[0].pid))  # nobody has asked whether it is running


@pytest.mark.parametrize("text", [None, "", "{", '{"rate": "fast"}', '{"rate": NaN}', '{"rate": 0.0}'])
def test_a_missing_or_damaged_file_is_no_rate(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "machine-cpu.json").write_text(text)
    assert SpeedMeasurement(tmp_path).rate("cpu") is None


def test_the_rate_is_kept_per_device(tmp_path: Path) -> None:
    (tmp_path / "machine-cpu.json").write_text('{"rate": 2.5e9, "device": "cpu"}')
    assert SpeedMeasurement(tmp_path).rate("cpu") == 2.5e9
    assert SpeedMeasurement(tmp_path).rate("cuda") is None


def config(**sections: dict[str, Any]) -> Any:
    base: dict[str, Any] = {
        "reward": {"components": [{"kind": "length"}]},
        "ppo": {"batch_size": 4, "mini_batch_size": 2, "ppo_epochs": 3},
        "generation": {"response_length": 5},
    }
    return parse_config({**base, **sections})


def test_seconds_by_hand() -> None:
    """4 episodes × (7 + 5) tokens × (two forward passes of 2, three learning passes of 6) × 1000 weights."""
    operations = 4 * 12 * (4 + 18) * 1000
    assert seconds_per_step(config(), RunModels(POLICY), 7, "cpu", 1e6) == pytest.approx(
        (FASTEST * operations / 1e6, SLOWEST * operations / 1e6)
    )
    lora = 4 * 12 * (4 + 12) * 1000
    assert seconds_per_step(config(lora={"enabled": True}), RunModels(POLICY), 7, "cpu", 1e6)[0] == pytest.approx(FASTEST * lora / 1e6)
    scored = operations + 4 * 12 * 2 * 500
    assert seconds_per_step(config(), RunModels(POLICY, [ModelFacts(None, "A", parameters=500)]), 7, "cpu", 1e6)[0] == pytest.approx(
        FASTEST * scored / 1e6
    )


def test_a_critic_of_its_own_reads_and_learns() -> None:
    operations = 4 * 12 * ((4 + 18) * 1000 + (2 + 18) * 300)
    models = RunModels(POLICY, critic=ModelFacts(None, "A", parameters=300))
    assert seconds_per_step(config(), models, 7, "cpu", 1e6)[0] == pytest.approx(FASTEST * operations / 1e6)
    assert seconds_per_step(config(), RunModels(POLICY, critic=ModelFacts(None, "A")), 7, "cpu", 1e6) is None


def test_a_gpu_is_bound_by_starting_kernels() -> None:
    """5 decoding steps and 3 passes × 3 epochs × 2 micro-batches, 2 blocks, kernels of 8 microseconds. Adapters are merged for sampling."""
    low, high = seconds_per_step(config(), RunModels(POLICY), 7, "cuda", 1e30)
    assert low == pytest.approx((5 + 18) * 2 * 45 * 8e-6) and high == pytest.approx(2 * low)
    gpt2, lora = RunModels(replace(POLICY, model_type="gpt2")), config(lora={"enabled": True})
    assert seconds_per_step(config(), gpt2, 7, "cuda", 1e30)[0] == pytest.approx((5 + 18) * 2 * 24 * 8e-6)
    assert seconds_per_step(lora, gpt2, 7, "cuda", 1e30)[0] == pytest.approx((5 * 24 + 18 * 46) * 2 * 8e-6)


def test_parts_that_are_sampled_one_after_the_other_start_their_own_kernels() -> None:
    """Of 4 responses 3 together are two parts, and one alone four: 5 decoding steps each."""
    for together, parts in ((0, 1), (4, 1), (9, 1), (3, 2), (1, 4)):
        generation = {"response_length": 5, "batch_size": together}
        low, _ = seconds_per_step(config(generation=generation), RunModels(POLICY), 7, "cuda", 1e30)
        assert low == pytest.approx((5 * parts + 18) * 2 * 45 * 8e-6), together


def test_an_unknown_model_gives_no_time() -> None:
    unknown = ModelFacts(None, "A")
    assert seconds_per_step(config(), RunModels(unknown), 7, "cpu", 1e6) is None
    assert seconds_per_step(config(), RunModels(ModelFacts(None, "A", parameters=5)), 7, "cpu", 1e6) is None
    assert seconds_per_step(config(), RunModels(POLICY, [unknown]), 7, "cpu", 1e6) is None
