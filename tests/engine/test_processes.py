"""Several processes train as one, on the CPU: forked from this one; started by accelerate, on one machine or two, in the long tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import psutil
import pytest
import torch
import yaml
from accelerate.state import AcceleratorState, PartialState
from safetensors.torch import load_file

from rlhf_studio.child_process.environment import FOLDER_VARIABLE
from rlhf_studio.cli.main import main
from rlhf_studio.config import EngineConfig, RunConfig
from rlhf_studio.config.io import ConfigError, config_from_file
from rlhf_studio.engine.compute import device as device_module
from rlhf_studio.engine.compute.device import Compute, choose_compute
from rlhf_studio.engine.compute.ranks import BUCKET, ONE_RANK, Ranks, _buckets
from rlhf_studio.engine.process.worker import run_engine
from rlhf_studio.inputs.checks.machine import batch_split_problems
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.launch import engine_processes
from rlhf_studio.runs.liveness import holder_pid
from rlhf_studio.runs.processes import launcher_command, wants_several
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StartMode
from tests.engine.conftest import small_config
from tests.engine.kill_loop import exit_code, fork_engine
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

TWO = {"processes": 2, "threads": 1}
TIMINGS = ("time/", "speed/", "memory/")


def write_config(folder: Path, name: str, **changes: dict[str, Any]) -> Path:
    """The small run as a YAML file. Texts without an end, with limits of their own, so that shares differ in width."""
    settings: dict[str, Any] = {
        "lora": {"enabled": True, "r": 4},
        "generation": {"response_length": 8, "response_length_min": 2},
        "ppo": {"steps": 3, "mini_batch_size": 4, "micro_batch_size": 1, "entropy_coef": 0.01},
        "reward": {"scaling": "normalise", "missing_eos_penalty": 0.3},
    }
    for section, values in changes.items():
        settings[section] = {**settings.get(section, {}), **values}
    config = small_config(folder, **settings)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
    return path


def run(*arguments: str | Path, code: int = 0) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "rlhf_studio", *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def metrics(folder: Path) -> list[dict[str, float]]:
    return [values for _, values in RunReader(folder).metrics_since(0, limit=100)]  # type: ignore[misc]


def in_two_processes(run_dir: Path, mode: StartMode) -> None:
    """Two engines, forked from this process, which are connected as accelerate's launcher would; both must succeed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    engines = []
    for rank in ("0", "1"):
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, {**variables, "ACCELERATE_USE_CPU": "true", "GLOO_SOCKET_IFNAME": "lo"}))
            for state in (PartialState, AcceleratorState):  # another test of this process may have used accelerate
                stack.enter_context(mock.patch.dict(state._shared_state, clear=True))
            engines.append(fork_engine(run_dir, mode))
    assert [exit_code(engine) for engine in engines] == [0, 0], (run_dir / "engine.log").read_text()


def test_two_processes_are_one(tmp_path: Path) -> None:
    """Losses, KL, scores and gradient norms of every step, the recorded tokens, and the final adapter; also gone on with from step 2."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, engine in ((one, {"threads": 1}), (two, TWO)):
        generation = {"batch_size": 3} if folder == two else {}  # of each process's four
        settings = {"engine": {**engine, "watch_prompts": 2, "checkpoint_every": 2}, "generation": generation}
        create_run(folder, config_from_file(write_config(tmp_path, folder.name, **settings)), name=folder.name, state="loading")
    assert run_engine(one) == 0
    in_two_processes(two, "train")
    last = checkpoints(two)[-1]
    ours, theirs = (load_file(folder / "policy" / "adapter_model.safetensors") for folder in (last, checkpoints(one)[-1]))
    assert_same_course(two, one)
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, atol=1e-5, rtol=1e-4)

    shutil.rmtree(last)  # as if both had been killed after step 2
    in_two_processes(two, "resume")
    assert_same_course(two, one)
    again = load_file(checkpoints(two)[-1] / "policy" / "adapter_model.safetensors")
    assert all(torch.equal(again[name], tensor) for name, tensor in ours.items())


def assert_same_course(folder: Path, expected_in: Path) -> None:
    """Three steps with the same numbers and texts."""
    assert RunReader(folder).status().state == "finished"
    check_metrics(folder, expected_in)
    check_records(folder, expected_in, steps=3)
    for step in (1, 2, 3):
        pairs = zip(RunReader(folder).rollouts(step), RunReader(expected_in).rollouts(step), strict=True)
        assert all((a.prompt, a.response) == (b.prompt, b.response) for a, b in pairs)


@pytest.mark.long
def test_started_by_accelerate_and_gone_on_with_on_two_machines(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    alone = write_config(tmp_path, "alone", engine={"threads": 1, "watch_prompts": 2})
    assert main(["train", "--config", str(alone), "--run-dir", str(one)]) == 0
    shared = write_config(tmp_path, "shared", engine={**TWO, "watch_prompts": 2, "checkpoint_every": 2})
    run("train", "--config", shared, "--run-dir", two, "--ppo.steps", "3")
    assert_same_course(two, one)
    shutil.rmtree(checkpoints(two)[-1])
    first, second = on_two_machines("resume", two)
    assert "Resumed from the checkpoint of step 2" in first and "step 3/3" in first
    assert "step 3/3" not in second  # the first machine alone speaks and writes
    assert_same_course(two, one)


def check_metrics(folder: Path, expected_in: Path, steps: int = 3) -> None:
    """All steps are the same up to rounding, but for what depends on the clock."""
    ours, theirs = metrics(folder), metrics(expected_in)
    assert len(ours) == len(theirs) == steps
    for step, (values, expected) in enumerate(zip(ours, theirs, strict=True), start=1):
        assert set(values) == set(expected)
        for name in expected:
            if not name.startswith(TIMINGS):
                assert values[name] == pytest.approx(expected[name], rel=1e-5, abs=1e-5), (step, name)


def check_records(folder: Path, expected_in: Path, steps: int) -> None:
    """All episodes, answers to the watched prompts and probes: their tokens are the same, and their numbers up to rounding."""
    ours, theirs = (everything_recorded(RunReader(path), steps) for path in (folder, expected_in))
    assert set(ours) == set(theirs) and {kind for _, kind, _ in ours} == {"episodes", "watched", "probe"}
    for where, arrays in theirs.items():
        assert set(ours[where]) == set(arrays)
        for name, expected in arrays.items():
            if isinstance(expected, np.ndarray | float):
                np.testing.assert_allclose(ours[where][name], expected, rtol=1e-4, atol=1e-5, err_msg=f"{name} of {where}")
            else:
                assert ours[where][name] == expected, (where, name)


def everything_recorded(reader: RunReader, steps: int) -> dict[tuple[int, str, int], dict[str, Any]]:
    """By step, kind and sample: the fields of each record, and what its dictionaries hold as fields of their own."""
    probes, scores = reader.probes()
    records = [(step, "episodes", 0, vars(actual)) for step, actual in reader.episodes(1, steps).items()]
    records += [(step, "watched", answer.sample, vars(answer)) for step, answer in reader.watched()]
    records += [(step, "probe", score.probe, vars(score)) for step, score in scores]
    assert len(reader.episodes(1, steps)) == steps and len(scores) == (steps + 1) * len(probes) > 0
    actual = {}
    for step, kind, sample, record in records:
        inner = {f"{name}/{key}": array for name, value in record.items() if isinstance(value, dict) for key, array in value.items()}
        actual[step, kind, sample] = {name: value for name, value in record.items() if not isinstance(value, dict)} | inner
    return actual


def on_two_machines(command: str, folder: Path) -> list[str]:
    """What each of two launchers prints that start one process each, as on two machines that see the same folder; both must succeed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", FOLDER_VARIABLE: str(folder)}
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "2", "--num_processes", "2"]
    launch += ["--main_process_ip", "127.0.0.1", "--main_process_port", port, "--mixed_precision", "no", "--dynamo_backend", "no"]
    launchers = [
        subprocess.Popen(
            [*launch, "--machine_rank", str(rank), "-m", "rlhf_studio", command, str(folder)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        outputs = [launcher.communicate(timeout=300)[0] for launcher in launchers]
        assert [launcher.returncode for launcher in launchers] == [0, 0], outputs
        return outputs
    finally:
        for pid in engine_processes(folder):  # launchers and what they started carry the folder in their environment
            os.kill(pid, signal.SIGKILL)


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("step-*"))


@pytest.mark.long
def test_a_failing_reward_ends_all_and_leaves_nothing_running(tmp_path: Path) -> None:
    """The pattern outruns its time limit in one process only: both end, the cause is on record, and nothing is left running."""
    bad = {"components": [{"kind": "regex", "pattern": "(w|w)*$" * 3 + "(?=impossible)", "timeout": 1e-9}]}
    folder = tmp_path / "run"
    run("train", "--config", write_config(tmp_path, "bad", reward=bad, engine=TWO), "--run-dir", folder, code=1)
    status = RunReader(folder).status()
    assert status.state == "failed" and "the pattern" in str(status.cause)


@pytest.mark.long
@pytest.mark.parametrize("how", ["signal", "stop", "stop --now", "suspended, then stop --now"])
def test_stopping_while_all_load_leaves_nothing_behind(tmp_path: Path, how: str) -> None:
    """Both processes wait for a reward function that takes for ever to start; no follower waits for ever, and no child is left."""
    slow = tmp_path / "slow.py"
    slow.write_text("import time\ntime.sleep(10**6)\ndef score(prompts, responses): return [0.0] * len(responses)\n")
    path = write_config(tmp_path, "slow", engine=TWO, reward={"components": [{"kind": "python", "file": str(slow), "function": "score"}]})
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "rlhf_studio", "train", "--config", path, "--run-dir", folder, "--allow-custom-rewards", slow]
    launcher = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_until(lambda: folder.exists() and "Starting the reward" in RunReader(folder).status().phase, 120)
        wait_until(lambda: len(naming(slow)) == 3, 60)  # the first process of all, and a child of each of the two
        if how == "signal":
            launcher.send_signal(signal.SIGTERM)
        if how.startswith("suspended"):
            os.kill(holder_pid(folder) or 0, signal.SIGSTOP)
        if "stop" in how:
            run("stop", folder, *(["--now"] if "--now" in how else []))
        assert launcher.wait(60) in ((1, 3) if "suspended" in how else (3,))
        assert naming(slow) == [] and engine_processes(folder) == []
        assert RunReader(folder).status().state == "stopped"
        (event,) = (event for event in RunReader(folder).newest_events() if event.kind == "stop")
        assert ("Ended by force" in event.text) is ("suspended" in how)
    finally:
        launcher.kill()
        launcher.communicate()
        for pid in engine_processes(folder):
            os.kill(pid, signal.SIGKILL)


def naming(file: Path) -> list[int]:
    """Living processes of ours whose command line names the file, whoever is their parent by now."""
    actual = psutil.process_iter(["cmdline", "status"])
    return [one.pid for one in actual if str(file) in (one.info["cmdline"] or []) and one.info["status"] != psutil.STATUS_ZOMBIE]


def test_shares_that_do_not_come_out_even(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, "odd", engine={**TWO, "processes": 3})
    assert main(["train", "--config", str(path), "--run-dir", str(tmp_path / "run")]) == 2
    assert "ppo.batch_size: 8 episodes cannot be shared by 3 processes" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# --- parts, without processes ------------------------------------------------------------------------------------------------------


def test_alone_everything_is_the_identity() -> None:
    x = torch.arange(6.0).reshape(3, 2)
    assert ONE_RANK.gather(x) is x and ONE_RANK.all_reduce_max(2.5) == 2.5 and ONE_RANK.all_reduce_sum([1.0, 2.0]) == [1.0, 2.0]
    assert ONE_RANK.broadcast(2) == 2 and ONE_RANK.rows(8) == slice(0, 8) and ONE_RANK.is_main
    ONE_RANK.raise_together("a problem of this rank is raised by its caller", RuntimeError)


def test_the_ranks_rows_cover_the_batch_once() -> None:
    three = [Ranks() for _ in range(3)]
    for rank, ranks in enumerate(three):
        ranks.rank, ranks.size = rank, 3
    assert [list(range(12))[ranks.rows(12)] for ranks in three] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert [ranks.is_main for ranks in three] == [True, False, False]
    assert "3 processes, each cpu" in Compute(torch.device("cpu"), torch.float32, three[0]).describe()


def test_gradients_travel_in_messages_of_one_kind() -> None:
    half = torch.zeros(3, dtype=torch.float16)
    big = torch.zeros(BUCKET - 1)
    groups = _buckets([torch.zeros(2), torch.zeros(3), half, half, big, torch.zeros(1), torch.zeros(1)])
    assert [[len(part) for part in group] for group in groups] == [[2, 3], [3, 3], [BUCKET - 1, 1], [1]]


def test_when_others_are_started(tmp_path: Path) -> None:
    several = EngineConfig(processes=2)
    assert wants_several(several, {}) and not wants_several(EngineConfig(), {})
    assert wants_several(EngineConfig(accelerate_config="some.yaml"), {})
    assert not wants_several(several, {"RANK": "0"})
    assert not wants_several(several, {"RLHF_STUDIO_COORDINATED": "1"})  # a launcher that starts a single process must not start more
    command = launcher_command(tmp_path, several, "resume")
    assert command[1:3] == ["-m", "accelerate.commands.launch"] and command[-4:] == ["-m", "rlhf_studio", "resume", str(tmp_path)]
    assert command[command.index("--num_processes") + 1] == "2"
    assert "--num_processes" not in launcher_command(tmp_path, EngineConfig(accelerate_config="some.yaml"), "train")


def test_settings_that_processes_cannot_share() -> None:
    config = RunConfig.model_validate({"ppo": {"batch_size": 8, "mini_batch_size": 2}})
    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(ConfigError, match="ppo.mini_batch_size: 2 episodes cannot be shared by 4 processes"),
    ):
        four = Ranks()
        four.size = 4
        patch.setattr(device_module, "join_ranks", lambda cpu: four)
        choose_compute(config)
    assert list(batch_split_problems(config, 2)) == []
