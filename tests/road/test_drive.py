"""Going along a road with stand-ins for the engines: to the end, stopped, failed, killed, and by two at once."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlhf_studio.cli.main import build_parser
from rlhf_studio.config_io import Problem
from rlhf_studio.exit_codes import BAD_INPUT, DONE, FAILED, STOPPED
from rlhf_studio.inputs.provenance import hash_of
from rlhf_studio.road import drive as driving
from rlhf_studio.road.drive import drive, go_on_command
from rlhf_studio.road.running import PartFailed, Signals, StopAsked, run_command
from rlhf_studio.road.state import Part, is_driven, read_road
from rlhf_studio.runs.reader import RunReader
from tests.road.stand_ins import CAUSE, behave, journal, new_road, stand_in, start_driver
from tests.runs.store_helpers import end
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stand_in(monkeypatch)
    return tmp_path


@pytest.fixture
def started(workspace: Path) -> Iterator[Callable[[Path], subprocess.Popen[bytes]]]:
    """Starts drivers in processes of their own; what is left of them, and of engines, is ended with the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(folder: Path) -> subprocess.Popen[bytes]:
        processes.append(start_driver(folder, workspace))
        return processes[-1]

    yield start
    for process in processes:
        end(process)
    for run in (workspace / "runs").glob("*-*"):
        pid = RunReader(run).status().pid
        if RunReader(run).status().state == "running" and pid:
            os.kill(pid, signal.SIGKILL)


def part(folder: Path, key: str = "sft") -> Part:
    return read_road(folder).part(key)


def reader(folder: Path, key: str = "sft") -> RunReader:
    return RunReader(folder.parents[1] / "runs" / part(folder, key).run)


def under_way(folder: Path, steps: int = 2) -> bool:
    return bool(part(folder).run) and reader(folder).run_dir.exists() and reader(folder).status().step >= steps


def test_all_parts_one_after_the_other_each_with_its_number(workspace: Path) -> None:
    folder, said = new_road(workspace), list[str]()
    assert drive(folder, workspace, said.append) == DONE
    began = ["train sft", "generate", "label", "train reward_model", "train ppo", "train evaluation"]
    assert journal(workspace) == began and not is_driven(folder)
    road = read_road(folder)
    assert {one.state for one in road.parts} == {"done"} and all(one.seconds > 0 for one in road.parts)
    # by hand: three steps of the stand-in; win rate of the second policy 2 of 3
    headlines = {one.key: one.headline for one in road.parts}
    assert headlines["sft"] == "Held-out loss 3.50 → 1.50." and headlines["pairs"] == "label: 1 line"
    assert headlines["reward_model"] == "Held-out accuracy 50.0 % → 70.0 % of 9 pairs." and headlines["ppo"] == "Gold score 0.50 → 1.50."
    assert headlines["evaluation"].startswith("The last policy wins 67 % of comparisons with the first (")
    assert headlines["evaluation"].endswith(", on 3 prompts.")
    assert [line for line in said if line.startswith("Train with PPO: done in ") and line.endswith("Gold score 0.50 → 1.50.")]
    pairs = part(folder, "pairs")
    assert pairs.file == str(folder / "pairs-1.jsonl") and pairs.sha256 == hash_of(folder / "pairs-1.jsonl")
    policy = reader(folder).run_dir / "checkpoints" / "step-000003" / "policy"
    assert (pairs.policy, pairs.policy_sha256) == (str(policy), hash_of(policy))
    names = {run.name: RunReader(run).status().name for run in (workspace / "runs").glob("2*")}
    assert sorted(names) == sorted(one.run for one in road.parts if one.run)
    assert drive(folder, workspace, said.append) == DONE and journal(workspace) == began  # nothing is left to do


@pytest.mark.parametrize(("how", "goes_on"), [("hold", "resume sft"), ("unsaved", "resume --from-start sft")])
def test_a_stopped_part_keeps_its_run_and_goes_on_with_it(
    workspace: Path, started: Callable[[Path], subprocess.Popen[bytes]], how: str, goes_on: str
) -> None:
    """From its checkpoint; from the start where there is none."""
    folder = new_road(workspace)
    behave(workspace, sft=how, ppo="failing")
    driver = started(folder)
    wait_until(lambda: under_way(folder))
    run = part(folder).run
    driver.send_signal(signal.SIGTERM)
    assert driver.wait(20) == STOPPED
    stopped = part(folder)
    assert (stopped.state, stopped.run) == ("stopped", run) and stopped.seconds > 0
    assert reader(folder).status().state == "stopped"
    log = (folder / "road.log").read_text()
    assert log.endswith(f"stopped\ngo on with: python -m rlhf_studio road go {folder}\n")
    steps = reader(folder).status().step
    behave(workspace, ppo="failing")
    assert drive(folder, workspace, lambda text: None) == FAILED
    assert part(folder).run == run and journal(workspace)[:2] == ["train sft", goes_on]
    assert reader(folder).status().step == (max(steps, 3) if how == "hold" else 3)
    assert part(folder, "ppo").state == "failed" and part(folder).seconds > stopped.seconds


def test_a_part_that_failed_is_begun_again_in_its_own_run(workspace: Path) -> None:
    folder, said = new_road(workspace), list[str]()
    behave(workspace, sft="failing")
    assert drive(folder, workspace, said.append) == FAILED
    failed = part(folder)
    assert (failed.state, failed.problem) == ("failed", CAUSE) and failed.run
    assert said[-2:] == [f"failed: {failed.title}: {CAUSE}", f"put that right, then go on with: {go_on_command(folder, workspace)}"]
    behave(workspace, ppo="failing")
    assert drive(folder, workspace, said.append) == FAILED
    assert part(folder).run == failed.run and part(folder).problem == "" and part(folder).state == "done"
    assert journal(workspace)[:2] == ["train sft", "resume --from-start sft"]
    assert "  begun again from step 0: it has no checkpoint" in said and reader(folder).status().step == 3


def test_an_engine_that_never_began_is_told_with_its_last_line_and_started_anew(workspace: Path) -> None:
    folder = new_road(workspace)
    behave(workspace, sft="unborn")
    assert drive(folder, workspace, lambda text: None) == FAILED
    assert "exit code 2" in part(folder).problem and "there is no model in this folder" in part(folder).problem
    behave(workspace, reward_model="failing")
    drive(folder, workspace, lambda text: None)
    assert journal(workspace)[:2] == ["train sft", "train sft"] and part(folder).state == "done"


@pytest.mark.parametrize("finishes", [True, False], ids=["it finishes", "it is stopped"])
def test_an_engine_that_outlived_its_driver_is_waited_for(
    workspace: Path, started: Callable[[Path], subprocess.Popen[bytes]], finishes: bool
) -> None:
    folder = new_road(workspace)
    behave(workspace, sft="hold")
    first = started(folder)
    wait_until(lambda: under_way(folder))
    first.kill()
    first.wait(20)
    run, steps = part(folder).run, reader(folder).status().step
    assert part(folder).state == "stopped" and reader(folder).status().state == "running"
    second = started(folder)
    wait_until(lambda: "waiting for its end" in (folder / "road.log").read_text())
    wait_until(lambda: reader(folder).status().step > steps)
    assert second.poll() is None and part(folder).state == "running"
    if finishes:
        behave(workspace, reward_model="failing")
        (workspace / "runs" / ".finish").touch()
        assert second.wait(20) == FAILED
        taken_up = part(folder)
        assert (taken_up.state, taken_up.run) == ("done", run) and taken_up.headline.startswith("Held-out loss 3.50 → ")
        assert journal(workspace) == ["train sft", "generate", "label", "train reward_model"]
        return
    second.send_signal(signal.SIGTERM)  # an engine that it has not started is stopped too
    assert second.wait(20) == STOPPED
    assert reader(folder).status().state == "stopped" and part(folder).run == run
    assert journal(workspace) == ["train sft"]


def test_a_run_that_ended_while_nobody_went_along_is_taken_up(workspace: Path, started: Callable[[Path], subprocess.Popen[bytes]]) -> None:
    folder = new_road(workspace)
    behave(workspace, sft="hold", reward_model="failing")
    first = started(folder)
    wait_until(lambda: under_way(folder))
    first.kill()
    first.wait(20)
    os.kill(reader(folder).status().pid or 0, signal.SIGKILL)
    wait_until(lambda: reader(folder).status().state == "interrupted")
    behave(workspace, reward_model="failing")
    assert drive(folder, workspace, lambda text: None) == FAILED
    assert journal(workspace)[:3] == ["train sft", "resume --from-start sft", "generate"] and part(folder).state == "done"


def test_two_drivers_on_one_road_are_refused(workspace: Path, started: Callable[[Path], subprocess.Popen[bytes]]) -> None:
    folder = new_road(workspace)
    behave(workspace, sft="hold")
    started(folder)
    wait_until(lambda: under_way(folder))
    command = [sys.executable, "-m", "rlhf_studio", "road", "go", str(folder)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == BAD_INPUT and refused.stdout == ""
    assert refused.stderr == (f"rlhf-studio: another process goes along the road {folder} already; wait for its end, or stop it first\n")
    assert journal(workspace) == ["train sft"] and part(folder).state == "running"


def test_a_run_that_was_deleted_is_made_again_and_one_that_cannot_start_is_told(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new_road(workspace)
    behave(workspace, sft="failing")
    drive(folder, workspace, lambda text: None)
    shutil.rmtree(reader(folder).run_dir)
    behave(workspace)
    problems = [Problem("model.policy", "there is no such folder")]
    monkeypatch.setattr(driving, "inspect_run", lambda config, workspace: type("P", (), {"problems": problems})())
    assert drive(folder, workspace, lambda text: None) == BAD_INPUT
    assert part(folder).problem == "model.policy: there is no such folder" and part(folder).state == "failed"
    stand_in(monkeypatch)
    behave(workspace, reward_model="failing")
    assert drive(folder, workspace, lambda text: None) == FAILED and part(folder).state == "done"


def test_a_signal_between_two_parts_stops_before_the_next(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new_road(workspace)

    def command(folder: Path, arguments: list[str], signals: Signals) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        Path(arguments[-1]).write_text("{}\n")
        return "done all the same"

    monkeypatch.setattr(driving, "run_command", command)
    assert drive(folder, workspace, lambda text: None) == STOPPED
    assert [one.state for one in read_road(folder).parts] == ["done", "done", "waiting", "waiting", "waiting"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_pairs_that_were_half_made_are_made_anew(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands refuse a file that is there already; a part that goes on has written its own."""
    folder, asked = new_road(workspace), list[list[str]]()
    behave(workspace, reward_model="failing")

    def command(folder: Path, arguments: list[str], signals: Signals) -> str:
        asked.append(arguments)
        if arguments[0] == "label" and len(asked) == 2:
            raise PartFailed("the judge is not here")
        Path(arguments[arguments.index("--out") + 1]).write_text("{}\n", encoding="utf-8")
        return "2 pairs"

    monkeypatch.setattr(driving, "run_command", command)
    assert drive(folder, workspace, lambda text: None) == FAILED and part(folder, "pairs").state == "failed"
    assert drive(folder, workspace, lambda text: None) == FAILED and part(folder, "pairs").state == "done"
    read = [build_parser().parse_args(arguments) for arguments in asked]
    assert [one.command for one in read] == ["generate", "label"] * 2 and all(one.replace for one in read)


# --- commands ---------------------------------------------------------------------------------------------------------------------


def test_a_command_gives_its_last_line_and_fails_with_it(tmp_path: Path) -> None:
    with Signals() as signals:
        said = run_command(tmp_path, ["road", "list", "--workspace", str(tmp_path)], signals)
        assert said == f"No roads in {tmp_path} yet. Start one with: python -m rlhf_studio road world"
        with pytest.raises(PartFailed, match=r"^rlhf-studio: nowhere is not the folder of a road"):
            run_command(tmp_path, ["road", "go", "nowhere"], signals)
    assert said in (tmp_path / "road.log").read_text()


def test_a_command_that_outlived_its_driver_is_waited_for(tmp_path: Path) -> None:
    """It holds a lock of the road as long as it lives: two would write the same files."""
    hold = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", hold, str(tmp_path / "command.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other, Signals() as signals:
        assert other.stdout and other.stdin and other.stdout.readline() == b"\n"
        signals.received = True
        with pytest.raises(StopAsked):  # it would wait
            run_command(tmp_path, ["road", "list"], signals)
        assert not (tmp_path / "road.log").exists()
        other.stdin.close()
        other.wait(20)
        signals.received = False
        assert run_command(tmp_path, ["road", "list", "--workspace", str(tmp_path)], signals)


def test_the_command_to_go_on_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / "my work" / "roads" / "road-1"
    assert go_on_command(folder, tmp_path / "my work") == f"python -m rlhf_studio road go '{folder}'"
    elsewhere = shlex.split(go_on_command(folder, tmp_path))
    assert elsewhere == ["python", "-m", "rlhf_studio", "road", "go", str(folder), "--workspace", str(tmp_path)]
