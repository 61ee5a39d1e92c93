"""Going along a road with stand-ins for the engines: to the end, stopped, failed, killed, and by two at once."""

from __future__ import annotations

import fcntl
import functools
import os
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.cli.main import build_parser, main
from rlhf_studio.config.io import Problem
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.exit_codes import BAD_INPUT, DONE, FAILED, STOPPED
from rlhf_studio.inputs.provenance import hash_of
from rlhf_studio.jobs.road import drive as driving
from rlhf_studio.jobs.road import running
from rlhf_studio.jobs.road.drive import drive, go_on_command
from rlhf_studio.jobs.road.running import PartFailed, RoadStopped, StopSignals, _RunStopper, run_command
from rlhf_studio.jobs.road.state import Part, is_driven, read_road, write_road
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.liveness import EngineLock, is_locked
from rlhf_studio.runs.queue import Dispatcher
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from tests.road.stand_ins import CAUSE, behave, journal, new_road, stand_in, start_driver
from tests.runs.store_helpers import end
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    stand_in(monkeypatch)
    (tmp_path / "runs").mkdir()
    yield tmp_path
    (tmp_path / "runs" / ".finish").touch()  # no engine goes on after the test


def part(folder: Path, key: str = "sft") -> Part:
    return read_road(folder).part(key)


def reader(folder: Path, key: str = "sft") -> RunReader:
    return RunReader(folder.parents[1] / "runs" / part(folder, key).run)


def under_way(folder: Path, steps: int = 2) -> bool:
    return bool(part(folder).run) and reader(folder).run_dir.exists() and reader(folder).status().step >= steps


def test_all_parts_one_after_the_other_each_with_its_number(workspace: Path) -> None:
    folder, lines = new_road(workspace), list[str]()
    assert drive(folder, workspace, lines.append) == DONE
    began = ["train sft", "generate", "label", "train reward_model", "train ppo", "train evaluation"]
    assert journal(workspace) == began and not is_driven(folder)
    road = read_road(folder)
    assert {item.state for item in road.parts} == {"done"} and all(item.seconds > 0 for item in road.parts)
    # by hand: three steps of the stand-in; win rate of the second policy 2 of 3
    headlines = {item.key: item.headline for item in road.parts}
    assert headlines["sft"] == "Held-out loss 3.50 → 1.50." and headlines["pairs"] == "label: 1 line"
    chance = "This gain is within chance: 95 % interval 38 % to 90 %."  # Wilson, by hand: 0.7 of 9
    assert (
        headlines["reward_model"] == f"Held-out accuracy 50.0 % → 70.0 % of 9 pairs. {chance}"
        and headlines["ppo"] == "Gold score 0.50 → 1.50."
    )
    assert headlines["evaluation"].startswith("The last policy wins 67 % of comparisons with the first (")
    assert headlines["evaluation"].endswith(", on 3 prompts.")
    assert [line for line in lines if line.startswith("Train with PPO: done in ") and line.endswith("Gold score 0.50 → 1.50.")]
    pairs = part(folder, "pairs")
    assert pairs.file == str(folder / "pairs-1.jsonl") and pairs.sha256 == hash_of(folder / "pairs-1.jsonl")
    policy = reader(folder).run_dir / "checkpoints" / "step-000003" / "policy"
    assert (pairs.policy, pairs.policy_sha256) == (str(policy), hash_of(policy))
    names = {run.name: RunReader(run).status().name for run in (workspace / "runs").glob("2*")}
    assert sorted(names) == sorted(item.run for item in road.parts if item.run)
    assert drive(folder, workspace, lines.append) == DONE and journal(workspace) == began  # nothing is left to do


def stop_as_soon_as(condition: Callable[[], bool]) -> None:
    """Ask the driver in this process to stop, from a thread, when the condition holds."""

    def ask() -> None:
        wait_until(condition)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=ask, daemon=True).start()


def test_a_stopped_part_keeps_its_run_and_goes_on_with_it(workspace: Path) -> None:
    """From its checkpoint; from the start where there is none."""
    for how, goes_on in (("hold", "resume sft"), ("unsaved", "resume --from-start sft")):
        folder, lines, before = new_road(workspace), list[str](), len(journal(workspace))
        behave(workspace, sft=how, ppo="failing")
        stop_as_soon_as(functools.partial(under_way, folder))
        assert drive(folder, workspace, lines.append) == STOPPED, how
        stopped, steps = part(folder), reader(folder).status().step
        assert stopped.state == "stopped" and stopped.seconds > 0 and reader(folder).status().state == "stopped", how
        assert lines[-2:] == ["stopped", f"go on with: python -m rlhf_studio road go {folder}"], how
        behave(workspace, ppo="failing")
        assert drive(folder, workspace, lines.append) == FAILED, how
        assert part(folder).run == stopped.run and journal(workspace)[before:][:2] == ["train sft", goes_on], how
        assert reader(folder).status().step == (max(steps, 3) if how == "hold" else 3), how
        assert part(folder, "ppo").state == "failed" and part(folder).seconds > stopped.seconds, how


def test_a_part_that_failed_is_begun_again_in_its_own_run(workspace: Path) -> None:
    folder, lines = new_road(workspace), list[str]()
    behave(workspace, sft="failing")
    assert drive(folder, workspace, lines.append) == FAILED
    failed = part(folder)
    assert (failed.state, failed.problem) == ("failed", CAUSE) and failed.run
    assert lines[-2:] == [f"failed: {failed.title}: {CAUSE}", f"put that right, then go on with: {go_on_command(folder, workspace)}"]
    behave(workspace, ppo="failing")
    assert drive(folder, workspace, lines.append) == FAILED
    assert part(folder).run == failed.run and part(folder).problem == "" and part(folder).state == "done"
    assert journal(workspace)[:2] == ["train sft", "resume --from-start sft"]
    assert "  begun again from step 0: it has no checkpoint" in lines and reader(folder).status().step == 3


def test_an_engine_that_never_began_is_told_with_its_last_line_and_started_anew(workspace: Path) -> None:
    folder = new_road(workspace)
    behave(workspace, sft="unborn")
    assert drive(folder, workspace, lambda text: None) == FAILED
    assert "exit code 2" in part(folder).problem and "there is no model in this folder" in part(folder).problem
    behave(workspace, reward_model="failing")
    drive(folder, workspace, lambda text: None)
    assert journal(workspace)[:2] == ["train sft", "train sft"] and part(folder).state == "done"


def test_a_run_whose_engine_is_gone_is_begun_again(workspace: Path) -> None:
    folder = new_road(workspace)
    behave(workspace, sft="dying")
    assert drive(folder, workspace, lambda text: None) == FAILED
    assert part(folder).state == "failed" and reader(folder).status().state == "interrupted"
    behave(workspace, reward_model="failing")
    assert drive(folder, workspace, lambda text: None) == FAILED
    assert journal(workspace)[:3] == ["train sft", "resume --from-start sft", "generate"] and part(folder).state == "done"


def test_an_engine_that_outlived_its_driver_is_waited_for(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed driver writes nothing more: its part stays under way in the file, and its engine goes on."""

    class Killed(BaseException):
        pass

    def killed(dispatcher: Dispatcher, run_id: str, signals: StopSignals, say: Any, minutes: float) -> None:
        dispatcher.tick()
        wait_until(lambda: under_way(folder))
        raise Killed

    folder, lines = new_road(workspace), list[str]()
    behave(workspace, sft="hold")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(driving, "run_to_its_end", killed)
        drive(folder, workspace, lines.append)
    run = part(folder).run
    assert part(folder).state == "stopped" and reader(folder).status().state == "running"
    behave(workspace, reward_model="failing")

    def say(text: str) -> None:
        lines.append(text)
        if "waiting for its end" in text:
            assert part(folder).state == "running"
            (workspace / "runs" / ".finish").touch()

    assert drive(folder, workspace, say) == FAILED
    assert "  an engine is at work on its run already; waiting for its end" in lines
    taken_up = part(folder)
    assert (taken_up.state, taken_up.run) == ("done", run) and taken_up.headline.startswith("Held-out loss 3.50 → ")
    assert journal(workspace) == ["train sft", "generate", "label", "train reward_model"]


def is_waiting(lines: list[str], since: int) -> bool:
    return any("waiting in the queue" in line for line in lines[since:])


def test_a_part_waits_in_the_queue_for_the_run_that_is_at_work(workspace: Path) -> None:
    """Also one that had failed before: a signal takes it out of the queue, and it goes on as the part that it was."""
    other, folder, lines = workspace / "runs" / "20200101-000000-other0", new_road(workspace), list[str]()
    create_run(other, load_recipe("world").config, name="somebody's")
    for began in ([], ["train sft"]):
        waits = len(lines)
        stop_as_soon_as(functools.partial(is_waiting, lines, waits))
        with EngineLock(other), RunWriter(other) as writer:
            writer.set_state("running")
            assert drive(folder, workspace, lines.append) == STOPPED, began
        assert "  waiting in the queue: another run is at work" in lines[waits:] and lines[-2] == "stopped", began
        assert part(folder).state == "stopped" and journal(workspace) == began
        behave(workspace, sft="failing")
        assert drive(folder, workspace, lines.append) == FAILED, began
    assert journal(workspace) == ["train sft", "resume --from-start sft"]


def test_a_run_that_was_made_and_not_queued_is_begun(workspace: Path) -> None:
    """A driver was killed in between; that of 0.2.0 queued no run at all."""
    folder, run_id = new_road(workspace), "20200101-000000-abcdef"
    write_road(read_road(folder).with_part("sft", run=run_id, state="running"))
    create_run(workspace / "runs" / run_id, load_recipe("world-sft").config, name="a part")
    behave(workspace, sft="failing")
    lines: list[str] = []
    assert drive(folder, workspace, lines.append) == FAILED and part(folder).problem == CAUSE
    assert journal(workspace) == ["train sft"] and lines[1:2] == [f"failed: {part(folder).title}: {CAUSE}"]


def test_a_stop_reaches_a_run_that_has_not_said_yet_that_it_goes_on(tmp_path: Path) -> None:
    """An engine that resumes has its lock before it opens the records, which say until then that the run has ended."""
    workspace = Workspace(tmp_path)
    run = workspace.submit(load_recipe("world").config)
    folder = workspace.own_dir(run)
    with EngineLock(folder):
        with RunWriter(folder) as writer:
            writer.set_state("running")
            writer.set_state("stopped")
        with StopSignals() as signals:
            stop = _RunStopper(workspace, run, signals)
            signals.received = True
            stop.send()
            with RunWriter(folder) as writer:
                writer.set_state("running")
                stop.send()
                stop.send()
                assert [command.kind for command in writer.pending_commands()] == ["stop"]


def test_driver_and_engine_as_processes(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While one goes along, a second is refused; after a kill its engine lives on, and a later driver that is asked to stop stops it."""
    folder, lines = new_road(workspace), list[str]()
    behave(workspace, sft="hold")
    first = start_driver(folder, workspace)
    try:
        wait_until(lambda: under_way(folder), 60)
        assert main(["road", "go", str(folder)]) == BAD_INPUT
        assert "another process goes along the road" in capsys.readouterr().err
        assert journal(workspace) == ["train sft"] and part(folder).state == "running"
    finally:
        end(first)
    run, steps = part(folder).run, reader(folder).status().step
    assert part(folder).state == "stopped" and reader(folder).status().state == "running" and not is_driven(folder)
    stop_as_soon_as(lambda: any("waiting for its end" in line for line in lines) and reader(folder).status().step > steps)
    assert drive(folder, workspace, lines.append) == STOPPED
    assert reader(folder).status().state == "stopped" and part(folder).run == run and journal(workspace) == ["train sft"]
    assert (folder / "road.log").read_text() == "Fine-tune a new policy …\n"


def test_a_run_that_was_deleted_is_made_again_and_one_that_cannot_start_is_told(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new_road(workspace)
    behave(workspace, sft="failing")
    drive(folder, workspace, lambda text: None)
    shutil.rmtree(reader(folder).run_dir)
    behave(workspace)
    problems = [Problem("model.policy", "there is no such folder")]
    monkeypatch.setattr(driving, "inspect_run", lambda config, workspace, permissions: type("P", (), {"problems": problems})())
    assert drive(folder, workspace, lambda text: None) == BAD_INPUT
    assert part(folder).problem == "model.policy: there is no such folder" and part(folder).state == "failed"
    stand_in(monkeypatch)
    behave(workspace, reward_model="failing")
    assert drive(folder, workspace, lambda text: None) == FAILED and part(folder).state == "done"


def test_a_signal_between_two_parts_stops_before_the_next(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new_road(workspace)

    def command(folder: Path, arguments: list[str], signals: StopSignals) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        Path(arguments[-1]).write_text("{}\n")
        return "done all the same"

    monkeypatch.setattr(driving, "run_command", command)
    assert drive(folder, workspace, lambda text: None) == STOPPED
    assert [item.state for item in read_road(folder).parts] == ["done", "done", "waiting", "waiting", "waiting"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_pairs_that_were_half_made_are_made_anew(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands refuse a file that is there already; a part that goes on has written its own."""
    folder, received = new_road(workspace), list[list[str]]()
    behave(workspace, reward_model="failing")

    def command(folder: Path, arguments: list[str], signals: StopSignals) -> str:
        received.append(arguments)
        if arguments[0] == "label" and len(received) == 2:
            raise PartFailed("the judge is not here")
        Path(arguments[arguments.index("--out") + 1]).write_text("{}\n", encoding="utf-8")
        return "2 pairs"

    monkeypatch.setattr(driving, "run_command", command)
    assert drive(folder, workspace, lambda text: None) == FAILED and part(folder, "pairs").state == "failed"
    assert drive(folder, workspace, lambda text: None) == FAILED and part(folder, "pairs").state == "done"
    read = [build_parser().parse_args(arguments) for arguments in received]
    assert [options.command for options in read] == ["generate", "label"] * 2 and all(options.replace for options in read)


# --- commands ---------------------------------------------------------------------------------------------------------------------

COMMANDS = """#!/bin/sh
shift 2  # -m rlhf_studio
echo first line; echo "$@ is done"
[ "$1" != fails ]
"""


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter is a script that says which command it was given; the command ``fails`` does."""
    script = tmp_path / "python"
    script.write_text(COMMANDS)
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(running, "POLL_SECONDS", 0.02)


def test_a_command_gives_its_last_line_and_fails_with_it(tmp_path: Path, commands: None) -> None:
    with StopSignals() as signals:
        assert run_command(tmp_path, ["label", "a file"], signals) == "label a file is done"
        with pytest.raises(PartFailed, match=r"^fails at once is done$"):
            run_command(tmp_path, ["fails", "at once"], signals)
    assert (tmp_path / "road.log").read_text().splitlines() == ["first line", "label a file is done", "first line", "fails at once is done"]


def test_a_command_that_outlived_its_driver_is_waited_for(tmp_path: Path, commands: None) -> None:
    """It holds a lock of the road as long as it lives: two would write the same files."""
    with (tmp_path / "command.lock").open("w") as other, StopSignals() as signals:
        fcntl.flock(other, fcntl.LOCK_EX)
        signals.received = True
        with pytest.raises(RoadStopped):  # it would wait
            run_command(tmp_path, ["label"], signals)
        assert not (tmp_path / "road.log").exists()
        fcntl.flock(other, fcntl.LOCK_UN)
        signals.received = False
        assert run_command(tmp_path, ["label"], signals)


def test_a_command_holds_the_lock_as_long_as_it_lives(tmp_path: Path, commands: None) -> None:
    """Whatever it started inherits the lock too: a reader of a pipe that is left behind keeps it until the pipe is closed."""
    pipe, lock = tmp_path / "pipe", tmp_path / "command.lock"
    os.mkfifo(pipe)
    (tmp_path / "python").write_text(f"#!/bin/sh\ncat '{pipe}' &\n")
    with StopSignals() as signals:
        run_command(tmp_path, ["label"], signals)
    held = is_locked(lock)
    pipe.open("w").close()
    assert held and wait_until(lambda: not is_locked(lock))


def test_the_command_to_go_on_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / "my work" / "roads" / "road-1"
    assert go_on_command(folder, tmp_path / "my work") == f"python -m rlhf_studio road go '{folder}'"
    elsewhere = shlex.split(go_on_command(folder, tmp_path))
    assert elsewhere == ["python", "-m", "rlhf_studio", "road", "go", str(folder), "--workspace", str(tmp_path)]
