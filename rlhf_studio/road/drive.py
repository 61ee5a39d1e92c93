"""Going along a road: each part in a process of its own, from the first that is not done to the last. May be stopped and begun again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from rlhf_studio.config import StageConfig
from rlhf_studio.config_io import ConfigError
from rlhf_studio.exit_codes import BAD_INPUT, DONE, FAILED, STOPPED
from rlhf_studio.preflight import inspect_run
from rlhf_studio.road.headlines import headline_of
from rlhf_studio.road.plan import RoadSettings, policy_for_pairs, run_settings
from rlhf_studio.road.state import LOG, Part, Road, driven, read_road, write_road
from rlhf_studio.runs import paths
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import NotRunning, StoreError
from rlhf_studio.runs.launch import start_engine
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.world.corpus import write_prompts

POLL_SECONDS = 0.2
SAMPLES = 3  # responses to each prompt: each two of them are a pair, so there are as many pairs as responses
PROMPTS_SEED = 9000  # of the prompts that pairs are sampled for; the bundled prompts have other seeds

Say = Callable[[str], None]


class _Stop(Exception):
    """Somebody asked the road to stop."""


class _PartFailed(Exception):
    """A part failed; the message is one sentence for people."""


def drive(folder: Path, workspace: Path, say: Say = print) -> int:
    """Go along the road in ``folder`` to its end; returns one of :mod:`rlhf_studio.exit_codes`.

    A signal to end stops the part that is under way with a checkpoint. Raises BlockingIOError when another process goes along it.
    """
    with driven(folder), _Signals() as signals:
        road = read_road(folder)
        while part := road.next_part():
            road = _begun(road, part)
            say(f"{part.title} …")
            started = time.monotonic()
            try:
                road = _Driver(road, workspace, signals).do(part)
            except _Stop:
                write_road(road.with_part(part.key, state="stopped"))
                say("stopped; go on with the same command")
                return STOPPED
            except (_PartFailed, ConfigError, StoreError, OSError) as error:
                write_road(road.with_part(part.key, state="failed", problem=str(error)))
                say(f"failed: {part.title}: {error}")
                return BAD_INPUT if isinstance(error, ConfigError) else FAILED
            seconds = part.seconds + time.monotonic() - started
            road = road.with_part(part.key, state="done", seconds=seconds, problem="")
            write_road(road)
            say(f"{part.title}: done in {seconds:.0f} s. {road.part(part.key).headline}")
    return DONE


def _begun(road: Road, part: Part) -> Road:
    road = road.with_part(part.key, state="running", problem="")
    write_road(road)
    return road


class _Signals:
    """Remembers that this process was asked to end, and lets it end the part under way first."""

    def __init__(self) -> None:
        self.received = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        self.received = True


class _Driver:
    """Does one part."""

    def __init__(self, road: Road, workspace: Path, signals: _Signals):
        self._road, self._runs, self._signals = road, workspace / paths.RUNS, signals

    def do(self, part: Part) -> Road:
        """The road after this part. Raises :class:`_Stop`, :class:`_PartFailed` and what its pieces raise."""
        return self._run(part) if part.kind == "run" else self._pairs(part)

    # --- a run of the workspace --------------------------------------------------------------------------------------------

    def _run(self, part: Part) -> Road:
        run_id = part.run or self._make(part)
        run_dir = self._runs / run_id
        status = RunReader(run_dir).status()
        if status.state != "finished":
            self._train(run_dir, "train" if status.state == "queued" else "resume")
        return self._road.with_part(part.key, headline=headline_of(RunReader(run_dir)))

    def _make(self, part: Part) -> str:
        config = run_settings(self._road, part.key, self._runs)
        memory = _checked(config, self._runs.parent)
        run_id = paths.new_run_id()
        create_run(self._runs / run_id, config, name=f"{part.title} ({self._road.name})", memory=memory)
        self._road = self._road.with_part(part.key, run=run_id)
        write_road(self._road)
        return run_id

    def _train(self, run_dir: Path, mode: Any) -> None:
        process = start_engine(run_dir, mode)
        asked = False
        while process.poll() is None:
            if self._signals.received and not asked:
                asked = True
                with contextlib.suppress(NotRunning):  # it ends by itself just now
                    send_command(run_dir, "stop")
            time.sleep(POLL_SECONDS)
        status = RunReader(run_dir).status()
        if status.state == "finished":
            return
        if self._signals.received or status.state == "stopped":
            raise _Stop
        raise _PartFailed(status.cause or f"the engine ended without a word; see {run_dir / paths.LOG}")

    # --- pairs: responses of a policy, compared by the judge -------------------------------------------------------------------

    def _pairs(self, part: Part) -> Road:
        settings = RoadSettings(**self._road.settings)
        number = int(part.key.partition("-")[2] or 1)
        folder, seed = self._road.folder, settings.seed + number - 1
        prompts, written, pairs = (folder / f"{name}-{number}.jsonl" for name in ("prompts", "responses", "pairs"))
        texts = write_prompts(PROMPTS_SEED + seed, ceil(settings.pairs / SAMPLES))
        lines = (json.dumps({"prompt": prompt}) + "\n" for prompt in texts)
        prompts.write_text("".join(lines), encoding="utf-8")
        policy = str(policy_for_pairs(self._road, part.key, self._runs))
        self._command(
            ["generate", policy, "--prompts", str(prompts), "--samples", str(SAMPLES), "--seed", str(seed), "--out", str(written)]
        )
        said = self._command(["label", str(written), "--judge", "world", "--seed", str(seed), "--out", str(pairs)])
        return self._road.with_part(part.key, file=str(pairs), headline=said)

    def _command(self, arguments: Sequence[str]) -> str:
        """Run one of our commands, its output in the road's log. Returns its last line; raises :class:`_PartFailed` with it."""
        with (self._road.folder / LOG).open("ab") as log:
            start = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", "rlhf_studio", *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            while process.poll() is None:
                if self._signals.received:
                    process.terminate()
                    process.wait()
                    raise _Stop
                time.sleep(POLL_SECONDS)
        with (self._road.folder / LOG).open("rb") as log:
            log.seek(start)
            said = log.read().decode("utf-8", "replace").strip().splitlines()
        if process.returncode:
            raise _PartFailed(said[-1] if said else f"the command {arguments[0]} ended with {process.returncode}")
        return said[-1] if said else ""


def _checked(config: StageConfig, workspace: Path) -> tuple[int, int] | None:
    """The memory that the run is expected to need. Raises ConfigError for what keeps it from starting."""
    preflight = inspect_run(config, workspace)
    if preflight.problems:
        raise ConfigError(preflight.problems)
    return preflight.expected_peak


def start_driver(folder: Path, workspace: Path) -> subprocess.Popen[bytes]:
    """Start the process that goes along a road, in a session of its own: it outlives the app. Raises OSError."""
    log = os.open(folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    command = [sys.executable, "-m", "rlhf_studio", "road", "go", str(folder), "--workspace", str(workspace)]
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    finally:
        os.close(log)
