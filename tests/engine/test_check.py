"""The command ``check``: what is right passes, and what is broken is called by its name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.speed.floor import floor
from benchmarks.speed.workloads import WORKLOADS
from rlhf_studio.cli.main import main
from rlhf_studio.engine.check import driver, machine, memory, rollouts, speed, workloads
from rlhf_studio.engine.check.checks import NAMES, CheckFailed, NoDevice, NotTried, Outcome, Task
from rlhf_studio.engine.check.page import as_json, is_right, last_line
from rlhf_studio.engine.check.resuming import compared, stopped_and_resumed
from rlhf_studio.engine.check.rollouts import judged
from rlhf_studio.engine.check.runs import train
from rlhf_studio.engine.check.server import FUNCTIONS, outcome_of
from rlhf_studio.inputs.estimate.device import processor
from rlhf_studio.runs.reader import RunReader
from tests.engine import pretend_cuda
from tests.engine.conftest import small_config

KEPT: dict[str, Any] = {"record_samples": 8, "snapshot_every": 1, "probe_prompts": 0}
ATTENTION = nn.functional.scaled_dot_product_attention


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task("cpu", tmp_path, quick=True)


def off(*arguments: Any, **options: Any) -> Tensor:
    """Attention with a mistake of 1 %."""
    return 1.01 * ATTENTION(*arguments, **options)


# --- the checks themselves, on models of some thousand weights ------------------------------------------------------------------------


def test_drawn_tokens_are_read_again_with_the_weights_that_drew_them(task: Task) -> None:
    """Both steps: the second one's weights come from the snapshot of the first, here an adapter on the base."""
    config = small_config(task.folder, "llama", lora={"enabled": True, "r": 2}, engine=KEPT, ppo={"learning_rate": 0.05})
    numbers: dict[str, float | str] = {}
    assert "drawn tokens have the CPU's log-probabilities" in judged(train(task, "run", config), "float32", numbers)
    assert max(float(numbers[f"{of}, step {step}, float32"]) for of in ("logprobs", "ref_logprobs") for step in (1, 2)) < 1e-4


def test_attention_that_is_off_by_a_hundredth_is_seen(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run itself sees nothing: all of its passes have the same mistake. Plain attention on the CPU has not."""
    config = small_config(task.folder, "llama", engine=KEPT)
    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", off)
    reader = train(task, "run", config)
    with pytest.raises(CheckFailed, match="step 1, float32: log-probabilities of the policy differ by .* from the CPU's"):
        judged(reader, "float32", {})


def test_a_model_for_which_there_is_no_memory_is_not_tried(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotTried, match="--model PATH or a hub id names one"):
        rollouts.check_own_model(task)
    monkeypatch.setattr(rollouts, "processor", lambda: replace(processor(), free=1))
    with pytest.raises(NotTried, match=r"passes need 9\.7 MB of memory, and 1 MB are free"):
        rollouts.check_own_model(replace(task, model="bundled/world-policy"))


def test_a_resumed_run_is_the_whole_one(task: Task) -> None:
    config = small_config(task.folder, ppo={"steps": 3}, engine={"checkpoint_every": 2, "record_samples": 1})
    whole, resumed = stopped_and_resumed(task, config)
    assert "draws the same tokens" in compared(whole, resumed, 1e-6)[0]
    with pytest.raises(CheckFailed, match="did not go on from its checkpoint"):
        compared(resumed, whole, 1e-6)


def test_the_operation_that_is_wrong_is_named(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "as in float64 on the CPU" in machine.check_kernels(task)[0]

    def wrong(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return a.softmax(dim=-1) * (1.0 if a.dtype is torch.float64 else 1.01)

    monkeypatch.setitem(machine.OPERATIONS, "softmax", wrong)
    with pytest.raises(CheckFailed, match="^softmax in float32 errs by 0.01 of its result, and rounding explains 1e-05 at most$"):
        machine.check_kernels(task)


def test_the_peak_may_lie_a_quarter_outside_of_the_estimate() -> None:
    for peak, right in ((0.79, False), (0.81, True), (2.49, True), (2.51, False), (float("nan"), False)):
        try:
            assert memory.judged(1e9, 2e9, peak * 1e9) and right
        except CheckFailed as error:
            assert not right and "estimated 1.0 to 2.0 GB" in str(error)


def test_the_timed_workloads_are_those_of_the_benchmarks() -> None:
    """Their operations are counted there by another formula, phase by phase."""
    for ours in (workloads.W3, workloads.W4):
        theirs = WORKLOADS[ours.name]
        shape = (theirs.policy.layers, theirs.policy.width, theirs.policy.heads, theirs.policy.vocabulary)
        assert shape == (ours.layers, ours.width, ours.heads, ours.vocabulary) and ours.neox == (theirs.policy.family == "gpt_neox")
        assert (theirs.batch, theirs.prompt, theirs.response, theirs.micro) == (ours.batch, ours.prompt, ours.response, ours.micro)
        assert theirs.epochs == workloads.EPOCHS and theirs.half and not theirs.lora
        assert workloads.operations(ours) == pytest.approx(floor(theirs).total, rel=1e-6)


# --- one after the other, whatever happens -----------------------------------------------------------------------------------------------


CHILD = """
import json, os, signal, sys, time
for line in sys.stdin:
    name = json.loads(line)["op"]
    if name == "rates":
        print("about to fail", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "sft":
        time.sleep(60)
    outcome = dict(event="outcome", name=name, state="right", sentence=str(os.getpid()), numbers={}, seconds=0.1, trace="")
    for event in ({"event": "failed", "error": "KeyError: 'x'"} if name == "dpo" else outcome, {"event": "done"}):
        print(json.dumps(event), flush=True)
"""


def test_a_check_that_crashes_or_hangs_takes_no_other_with_it(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    shorter = [driver.Check(check.name, "", 0.3 if check.name == "sft" else 20.0) for check in driver.CHECKS]
    monkeypatch.setattr(driver, "CHECKS", shorter)
    names = ("device", "kernels", "rates", "sft", "dpo", "ppo")
    seen = {outcome.name: outcome for outcome in driver.outcomes(task, names, 60, (sys.executable, "-c", CHILD))}
    assert [outcome.state for outcome in seen.values()] == ["right", "right", "wrong", "wrong", "wrong", "right"]
    assert "ended by signal 11" in seen["rates"].sentence and "about to fail" in seen["rates"].trace
    assert "not at its end" in seen["sft"].sentence and "KeyError" in seen["dpo"].sentence
    assert seen["device"].sentence == seen["kernels"].sentence != seen["ppo"].sentence  # one process until something fails
    late = [outcome.sentence for outcome in driver.outcomes(task, names, 0.0, (sys.executable, "-c", CHILD))]
    assert late == ["not done: the time was up (--minutes)"] * len(names)


def test_an_error_of_a_check_is_its_outcome(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    def crashes(task: Task) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access\nwas met")

    assert set(FUNCTIONS) == set(NAMES)
    monkeypatch.setitem(FUNCTIONS, "rates", crashes)
    outcome = outcome_of("rates", task)
    assert (outcome.state, outcome.sentence) == ("wrong", "crashed: RuntimeError: CUDA error: an illegal memory access")
    assert "in crashes" in outcome.trace

    def finds_nan(task: Task) -> Any:
        raise CheckFailed("the loss is not a number", {"loss": float("nan")})

    monkeypatch.setitem(FUNCTIONS, "rates", finds_nan)
    assert outcome_of("rates", task).numbers == {"loss": "nan"}  # JSON has no NaN


# --- the command -----------------------------------------------------------------------------------------------------------------


def given(*states: Any) -> Callable[..., Iterator[Outcome]]:
    def outcomes(task: Task, names: Sequence[str], seconds: float) -> Iterator[Outcome]:
        yield from (Outcome(name, state, "as it is", {"a": 1.0}, 1.0) for name, state in zip(names, states, strict=False))

    return outcomes


def test_the_exit_code_and_the_file_say_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "check.json"
    for states, code, last in (
        (("right", "not tried"), 0, "1 right, 1 not tried, nothing is wrong (2 s)"),
        (("right", "wrong"), 1, "1 right, 0 not tried, WRONG: kernels (2 s)"),
        (("not tried",), 1, "0 right, 1 not tried, nothing is wrong (1 s)"),
    ):
        monkeypatch.setattr(driver, "outcomes", given(*states))
        assert main(["check", "--device", "cpu", "--only", "kernels", "--json", str(file)]) == code
        assert capsys.readouterr().out.splitlines()[-1] == last
        written = json.loads(file.read_text(encoding="utf-8"))
        assert written["right"] == (code == 0) and [check["state"] for check in written["checks"]] == list(states)


def test_bad_options_and_a_missing_device_end_at_the_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: Any) -> Iterator[Outcome]:
        raise NoDevice("torch finds no CUDA GPU here")

    monkeypatch.setattr(driver, "outcomes", missing)
    monkeypatch.setattr("rlhf_studio.runs.gpus.find_gpus", lambda: ())
    for options, sentence in (
        (["--device", "cpu"], "--device: torch finds no CUDA GPU here"),
        (["--device", "cuda"], "--device: no CUDA GPU is available here; use cpu or auto"),
        (["--device", "tpu"], "--device: should be cpu, cuda, or one GPU by its number, such as cuda:1, not 'tpu'"),
        (["--device", "mps"], "sampling needs float64, and mps has none; use cpu"),
        (["--only", "sft,pro"], "--only: there is no check 'pro'; there are: device, memory"),
        (["--minutes", "0"], "should be minutes, above 0"),
        (["--json", str(tmp_path / "no" / "file")], "--json: there is no folder"),
        (["--model", str(tmp_path)], "--model: "),
    ):
        assert main(["check", *options]) == 2
        assert sentence in capsys.readouterr().err


# --- the whole ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_timed_workloads_run_through(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dolls in the place of the large models, on the CPU. A prompt keeps its length in tokens."""
    for name, neox in (("W3", False), ("W4", True)):
        large = getattr(workloads, name)
        doll = replace(large, neox=neox, layers=2, width=32, heads=2, vocabulary=128, batch=4, prompt=(2, 4), response=3, micro=4)
        monkeypatch.setattr(speed, name, doll)
    monkeypatch.setattr(speed, "room_for", lambda task, workload: "")
    sentence, numbers = speed.check_speed(replace(task, quick=False))
    for name in ("w3", "w4"):
        assert 0 < float(numbers[f"{name}, share of the rate"]) < 1 and f"{name} (" in sentence
        assert 0 < float(numbers[f"{name}, estimate, least"]) < float(numbers[f"{name}, estimate, most"])
        prompts = {len(rollout.prompt.split()) for rollout in RunReader(task.folder / f"speed-{name}").rollouts(1)}
        assert prompts <= {2, 3, 4}


@pytest.mark.long
def test_the_whole_is_right_on_this_cpu(tmp_path: Path) -> None:
    """The least sizes; what needs a GPU is not tried."""
    command = [sys.executable, "-m", "rlhf_studio", "check", "--device", "cpu", "--quick", "--json", str(tmp_path / "check.json")]
    ended = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    checks = json.loads((tmp_path / "check.json").read_text(encoding="utf-8"))["checks"]
    assert [check["name"] for check in checks] == list(NAMES)
    assert {check["name"] for check in checks if check["state"] != "right"} == {"model", "quantized", "processes", "fsdp"}


@pytest.mark.long
@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("broken", [False, True])
def test_a_broken_kernel_of_a_gpu_that_pretends_is_named(tmp_path: Path, broken: bool) -> None:
    """Attention on the device alone is off by 1 %. Each run's own check passes: it compares the device with itself."""
    names = ("kernels", "sft", "ppo", "ppo-lora", "resume")
    child = os.fork()
    if not child:
        try:
            pretend_cuda.install()
            torch.set_num_threads(1)
            right = nn.functional.scaled_dot_product_attention
            if broken:
                nn.functional.scaled_dot_product_attention = lambda q, *rest, **options: (  # type: ignore[assignment]
                    right(q, *rest, **options) * (1.01 if isinstance(q, pretend_cuda.OnGpu) else 1.0)
                )
            pretending = Task("cuda", tmp_path, quick=True)
            seen = [outcome_of(name, pretending) for name in names]
            (tmp_path / "seen.json").write_text(json.dumps(as_json(pretending, seen)), encoding="utf-8")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    checks = {check["name"]: check for check in json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))["checks"]}
    states = {name: check["state"] for name, check in checks.items()}
    if not broken:
        assert states == dict.fromkeys(names, "right"), checks
        return
    assert states == {"kernels": "wrong", "sft": "wrong", "ppo": "wrong", "ppo-lora": "wrong", "resume": "right"}, checks
    assert "crashed" not in str([check["sentence"] for check in checks.values()])
    assert "attention in float32 errs by 0.01" in checks["kernels"]["sentence"] and "softmax in" not in checks["kernels"]["sentence"]
    assert "the loss is" in checks["sft"]["sentence"] and "log-probabilities of the policy differ" in checks["ppo"]["sentence"]


def test_nothing_tried_is_not_right() -> None:
    assert not is_right([]) and "nothing is wrong" in last_line([])
