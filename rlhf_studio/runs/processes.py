"""One run in several processes: accelerate starts them, this process watches over them and says how it ended.

The start ticket stays here until rank 0 holds the engine lock, so that the run shows as starting all the while.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Protocol

from rlhf_studio.child_process.environment import FOLDER_VARIABLE
from rlhf_studio.config import EngineConfig, Permissions
from rlhf_studio.config.permissions import VARIABLE as PERMISSIONS_VARIABLE
from rlhf_studio.exit_codes import FAILED, OF_STATES
from rlhf_studio.language import S_
from rlhf_studio.runs import liveness, paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.gpus import find_gpus
from rlhf_studio.runs.launch import engine_arguments
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, StartMode
from rlhf_studio.runs.writer import record_end
from rlhf_studio.visible import say

COORDINATED = "RLHF_STUDIO_COORDINATED"
POLL_SECONDS = 0.1
COPY_SECONDS = 5.0  # for the last lines, should something that was left behind hold the pipe open


def is_follower(environment: Mapping[str, str]) -> bool:
    """Whether this process is a rank other than 0: only rank 0 writes into the run folder."""
    return int(environment.get("RANK", "0")) > 0


def wants_several(engine: EngineConfig, environment: Mapping[str, str]) -> bool:
    """Whether this process should start others instead of training itself. One that was started so never starts more."""
    started = "RANK" in environment or COORDINATED in environment
    return not started and bool(engine.accelerate_config or number_of_processes(engine) > 1)


def number_of_processes(engine: EngineConfig) -> int:
    """What was asked for; 0 means one for every GPU, and one process where there is none."""
    return engine.processes or (1 if engine.device == "cpu" else max(len(find_gpus() or ()), 1))


def launcher_command(run_dir: Path, engine: EngineConfig, mode: StartMode) -> list[str]:
    """``accelerate launch`` with what the settings say."""
    command = [sys.executable, "-m", "accelerate.commands.launch"]
    if engine.accelerate_config:
        command += ["--config_file", engine.accelerate_config]
    else:
        # --multi_gpu means "several processes by torchrun", also on a CPU: --cpu alone starts one process, or needs MPI.
        command += ["--multi_gpu", "--num_machines", "1", "--num_processes", str(number_of_processes(engine))]
        command += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    return [*command, *engine_arguments(run_dir, mode)]


class Terminal(Protocol):
    """Where a person watches, when this process's own output goes to the log; ``engine.process.screen.Screen`` is one."""

    def show(self, text: str) -> None:
        """Write one line."""


def run_processes(run_dir: Path, engine: EngineConfig, permissions: Permissions, mode: StartMode, *, screen: Terminal | None = None) -> int:
    """Start them, wait for their end, and return the exit code that one process would have returned.

    With a ``screen``, what the processes print is shown there and copied to this process's own output, the log.
    """
    environment = {**os.environ, COORDINATED: "1", FOLDER_VARIABLE: str(Path(run_dir).resolve())}
    if allowed := permissions.as_text():
        environment[PERMISSIONS_VARIABLE] = allowed
    output = subprocess.PIPE if screen else None
    process = subprocess.Popen(launcher_command(run_dir, engine, mode), env=environment, stdout=output)
    copying = threading.Thread(target=_copy, args=(process, screen), daemon=True)
    copying.start()
    # A stop goes to rank 0 alone: it saves and tells the others. The launcher would kill them all.
    received: list[int] = []
    before = {number: signal.signal(number, _pass_on(run_dir, process, received)) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while process.poll() is None:
            if liveness.holder_pid(run_dir):
                liveness.release_ticket(run_dir)
            time.sleep(POLL_SECONDS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        liveness.release_ticket(run_dir)
    copying.join(COPY_SECONDS)
    try:
        if received:
            with liveness.EngineLock(run_dir):  # where rank 0 had no time to say it
                record_end(run_dir, EventRecord("info", "stop", f"Stopped: signal {signal.Signals(received[0]).name}."))
        status = RunReader(run_dir).status()
    except StoreError:  # the run folder is gone; rank 0 has printed that
        return FAILED
    if screen and status.state not in (*OF_STATES, "failed"):  # else rank 0 has printed it
        screen.show(S_(f"{status.state}: {status.cause} ({run_dir}/{paths.LOG} has more)"))
    return OF_STATES.get(status.state, FAILED)


def _copy(process: subprocess.Popen[bytes], screen: Terminal | None) -> None:
    for line in process.stdout or ():
        text = line.decode("utf-8", "replace").rstrip("\n")
        say(text)
        if screen:
            screen.show(text)


def _pass_on(run_dir: Path, process: subprocess.Popen[bytes], received: list[int]) -> Callable[[int, FrameType | None], None]:
    def handler(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        holder = liveness.holder_pid(run_dir)
        os.kill(holder or process.pid, number)

    return handler
