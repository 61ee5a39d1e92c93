"""Stand-ins for what goes along a road: an engine and commands that need no model, and the driver with both of them.

In a test's own process an engine is a thread; a driver in a process of its own starts engines that are processes too.

Run by itself as an engine:  python stand_ins.py train|resume RUN [--from-start]
and as a driver:             python stand_ins.py drive ROAD WORKSPACE

A file beside the run folders, ``.behaviour``, says what an engine does (the word after the stage's name, else that after ``all``):

train     three steps, then it has finished (default)
hold      steps until it is told to stop, then a checkpoint; it finishes when ``.finish`` lies beside the run folders
unsaved   as hold, without a checkpoint
failing   two steps, then it fails with a cause
dying     two steps, then it is gone without a word, as after a kill
unborn    prints a reason and ends before it begins

``.journal`` beside it has a line for each engine and command that began.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlhf_studio.jobs.road import drive, running
from rlhf_studio.jobs.road.plan import SMALL, plan
from rlhf_studio.jobs.road.state import Road, new_road_folder, write_road
from rlhf_studio.runs import launch, paths
from rlhf_studio.runs.launch import engine_arguments
from rlhf_studio.runs.liveness import EngineLock, StartTicket
from rlhf_studio.runs.queue import Dispatcher
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, RolloutRecord, StartMode, StepRecord
from rlhf_studio.runs.writer import Heartbeat, RunWriter
from tests.runs.store_helpers import python_environment
from tests.runs.test_answers import answer
from tests.runs.test_checkpoints import checkpoint

HERE = Path(__file__).resolve()
CAUSE = "The loss is no number."


def new_road(workspace: Path, rounds: int = 1) -> Path:
    """The folder of a road that nobody has gone along."""
    settings = dataclasses.replace(SMALL, rounds=rounds)
    folder = new_road_folder(workspace)
    write_road(Road(folder, "a road", settings, plan(settings), time.time()))
    return folder


def behave(workspace: Path, **by_stage: str) -> None:
    """What the engines that begin from now on do."""
    (workspace / "runs").mkdir(exist_ok=True)
    (workspace / "runs" / ".behaviour").write_text(json.dumps(by_stage))


def journal(workspace: Path) -> list[str]:
    """What has begun, in order."""
    file = workspace / "runs" / ".journal"
    return file.read_text().splitlines() if file.exists() else []


def _note(runs: Path, what: str) -> None:
    runs.mkdir(exist_ok=True)
    with (runs / ".journal").open("a") as file:
        file.write(f"{what}\n")


# --- the driver ------------------------------------------------------------------------------------------------------------------


class EngineThread:
    """An engine in a thread of this process; the queue asks of it what it asks of a process."""

    def __init__(self, run_dir: Path, mode: StartMode, *, ticket: StartTicket):
        self.pid = os.getpid()
        self.returncode: int | None = None
        assert ticket.descriptor is not None
        own = os.dup(ticket.descriptor)  # the run is being started until the engine has its lock, as with a process
        threading.Thread(target=self._work, args=(run_dir, engine_arguments(run_dir, mode)[2:], own), daemon=True).start()

    def _work(self, run_dir: Path, arguments: Sequence[str], ticket: int) -> None:
        code = 70
        try:
            code = _engine(run_dir, [arguments[0], *arguments[2:]], lambda: os.close(ticket))
        finally:
            self.returncode = code

    def poll(self) -> int | None:
        return self.returncode


def stand_in(patch: pytest.MonkeyPatch) -> None:
    """Let a driver in this process work with the stand-ins; engines are threads."""

    def run_command(folder: Path, arguments: Sequence[str], signals: Any) -> str:
        _note(folder.parents[1] / "runs", arguments[0])
        Path(arguments[-1]).write_text("{}\n")
        return f"{arguments[0]}: 1 line"

    patch.setattr(drive, "Dispatcher", lambda workspace, interval: Dispatcher(workspace, EngineThread, 0.02))
    patch.setattr(drive, "run_command", run_command)
    patch.setattr(drive, "inspect_run", lambda config, workspace, **more: SimpleNamespace(problems=[], expected_peak=None))
    patch.setattr(running, "POLL_SECONDS", 0.02)


def engine_command(run_dir: Path, mode: StartMode = "train") -> list[str]:
    """In place of the one that starts a real engine."""
    return [sys.executable, str(HERE), *engine_arguments(run_dir, mode)[2:]]


def start_driver(folder: Path, workspace: Path) -> subprocess.Popen[bytes]:
    """A driver in a process of its own, its output in the road's log as that of the real one."""
    with (folder / "road.log").open("ab") as log:
        command = [sys.executable, str(HERE), "drive", str(folder), str(workspace)]
        return subprocess.Popen(command, stdout=log, stderr=log, env=python_environment(), start_new_session=True)


# --- the engine ------------------------------------------------------------------------------------------------------------------


def _metrics(stage: str, step: int) -> dict[str, float]:
    return {
        "sft": {"sft/loss": 4.0 - step, "sft/eval_loss": 4.5 - step},
        "reward_model": {"reward_model/accuracy": 0.5 + step / 10, "reward_model/eval_accuracy": 0.4 + step / 10},
        "ppo": {"objective/scores": float(step), "gold/score": step / 2},
    }.get(stage, {})


def _answers(stage: str, step: int) -> list[RolloutRecord]:
    """Of two policies; the second one's gold is higher on two prompts of three."""
    if stage != "evaluation":
        return []
    policies = [answer(0, "first", place=step, gold=0.0), answer(1, "second", place=step, gold=-1.0 if step == 1 else 1.0)]
    return [dataclasses.replace(record, response=record.policy) for record in policies]


def _work(folder: Path, writer: RunWriter, stage: str, how: str, from_start: bool) -> int:
    writer.set_state("running", "", device="cpu")
    if from_start:
        writer.go_back(0)
    step = RunReader(folder).status().step
    writer.plan(3)
    if stage == "reward_model":
        writer.event(EventRecord("info", "examples", "", {"held_out": 9}))
    while step < 3 or (how in ("hold", "unsaved") and not (folder.parent / ".finish").exists()):
        for command in writer.pending_commands():
            writer.acknowledge(command.id, "done")
            if how == "hold":
                checkpoint(folder, step)
            writer.set_state("stopped")
            return 3
        step += 1
        writer.commit_step(StepRecord(step, _metrics(stage, step), _answers(stage, step)))
        if how == "failing" and step == 2:
            writer.set_state("failed", "", cause=CAUSE)
            return 1
        if how == "dying" and step == 2:
            return -9
        time.sleep(0.01)
    checkpoint(folder, step)
    writer.set_state("finished")
    return 0


def _engine(folder: Path, arguments: Sequence[str], give_up_ticket: Callable[[], None]) -> int:
    stage, file = RunReader(folder).status().stage, folder.parent / ".behaviour"
    behaviour = json.loads(file.read_text()) if file.exists() else {}
    how = behaviour.get(stage, behaviour.get("all", "train"))
    _note(folder.parent, " ".join([*arguments, stage]))
    if how == "unborn":
        with (folder / paths.LOG).open("a") as log:
            log.write("there is no model in this folder\n")
        give_up_ticket()
        return 2
    with EngineLock(folder), RunWriter(folder) as writer, Heartbeat(folder, 0.05):
        give_up_ticket()
        return _work(folder, writer, stage, how, "--from-start" in arguments)


def main() -> int:
    """As the engine or as the driver."""
    kind, folder, *rest = sys.argv[1:]
    if kind != "drive":
        return _engine(Path(folder), [kind, *rest], lambda: None)  # a process gives it up with its lock
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch)
        patch.setattr(drive, "Dispatcher", Dispatcher)
        patch.setattr(launch, "engine_command", engine_command)
        return drive.drive(Path(folder), Path(rest[0]), lambda text: print(text, flush=True))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
