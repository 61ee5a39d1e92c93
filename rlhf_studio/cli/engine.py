"""What the command line does around an engine: other settings at a resume, torch's environment, one process or several, stopping.

Imported only by commands that need it. It imports no torch itself: :func:`one_engine` does, after the cheap checks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from rlhf_studio.child_process.environment import FOLDER_VARIABLE, START_FD_VARIABLE
from rlhf_studio.child_process.loading import libraries_stay
from rlhf_studio.config import Permissions, StageConfig
from rlhf_studio.config.changes import STAYS, STAYS_FROM_START, changes_between, refusals
from rlhf_studio.config.io import ConfigError, Problem, apply_overrides, parse_config
from rlhf_studio.engine.process.screen import Screen, output_in_log
from rlhf_studio.engine.process.stopping import Signals, StopRequested
from rlhf_studio.exit_codes import DONE, STOPPED
from rlhf_studio.inputs.checks.rewards import refuse_without_permission
from rlhf_studio.inputs.relative_paths import as_typed_here
from rlhf_studio.language import ENGLISH, _, speaking
from rlhf_studio.lessons.faults.names import fault_of
from rlhf_studio.runs import liveness
from rlhf_studio.runs.checkpoints import where_to_resume
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.create import replace_config
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.resuming import too_few_steps
from rlhf_studio.runs.launch import force_stop
from rlhf_studio.runs.processes import COORDINATED, is_follower, run_processes, wants_several
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import EventRecord, StartMode
from rlhf_studio.runs.writer import record_end


def before_torch() -> None:
    """What torch and CUDA read from the environment when they load; what is set already stays."""
    # Threads that wait should sleep: on a laptop the browser and the app need the same cores. But not at once: between two operations
    # of a decoding step pass some microseconds, and waking up takes longer than that.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")  # turns of waiting; with a third of them the gain was half gone
    # GPUs are numbered as nvidia-smi lists them, not the fastest first: cuda:1 is then the one that the form shows.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def run_folder(run_dir: Path, mode: StartMode, permissions: Permissions) -> int:
    """Train what a run folder says, in this process or in several that it starts. Returns the exit code.

    Relative paths in its settings start at the run's own working folder, as they do when the app starts it.

    Raises :class:`ConfigError` and :class:`~rlhf_studio.runs.errors.StoreError` for what is wrong before the engine begins.
    """
    before_torch()
    reader = RunReader(run_dir)
    config, folder = reader.config(), reader.working_folder()
    with contextlib.chdir(folder) if folder.is_dir() else contextlib.nullcontext():
        return _run_folder(reader.run_dir, config, mode, permissions)


def _run_folder(run_dir: Path, config: StageConfig, mode: StartMode, permissions: Permissions) -> int:
    if is_follower(os.environ) or COORDINATED in os.environ:
        with speaking(ENGLISH):
            return one_engine(run_dir, mode, permissions, screen=None)
    rewards = getattr(config, "reward", None)
    if rewards and START_FD_VARIABLE not in os.environ:  # what the app starts is refused by the engine, which puts it on record
        refuse_without_permission(rewards.components, permissions)
    liveness.announce_start(run_dir)  # loading torch takes seconds: a second engine is refused from here on
    with output_in_log(run_dir) as screen, named_for_children(run_dir), speaking(ENGLISH):  # what it stores is for all
        if not wants_several(config.engine, os.environ):
            return one_engine(run_dir, mode, permissions, screen)
        if mode == "resume":
            where_to_resume(run_dir)  # refused here, with a sentence, rather than by one of several processes
        return run_processes(run_dir, config.engine, permissions, mode, screen=screen)


def change_settings(run_dir: Path, overrides: Mapping[str, str], permissions: Permissions, mode: StartMode) -> None:
    """Give a run other settings before it is resumed: checked like those of a new run, and refused where the checkpoint decides.

    With ``mode`` ``from-start`` no checkpoint is used, and only what the run folder itself depends on stays.

    The start ticket stays with this process, so that nobody starts the run meanwhile. Raises ConfigError and StoreError, and
    then nothing has changed.
    """
    from rlhf_studio.inputs.estimate.disk import OnDisk
    from rlhf_studio.inputs.preflight import check_run  # here: engines import this module too and must not ask again

    reader = RunReader(run_dir)
    before = reader.config()
    folder = reader.working_folder()
    config = as_typed_here(parse_config(apply_overrides(before.model_dump(mode="json"), overrides)), before, folder)
    changes = changes_between(before.model_dump(mode="json"), config.model_dump(mode="json"))
    # A checkpoint of step 0 belongs to the run however often it begins again, so it goes on deciding.
    no_checkpoint = mode == "from-start" and not any(checkpoint.step == 0 for checkpoint in reader.checkpoints())
    refused = refusals(changes, STAYS_FROM_START if no_checkpoint else STAYS)
    problems = [Problem(setting, f"cannot change when a run is resumed: {reason}") for setting, reason in refused]
    problems += [] if mode == "from-start" else too_few_steps(reader.status(), reader, config)
    if problems or not changes:
        if problems:
            raise ConfigError(problems)
        return
    there = OnDisk(reader.status().last_recorded_step, len(reader.checkpoints()))
    if problems := check_run(config, reader.run_dir.parent, permissions, there, folder):
        raise ConfigError(problems)
    liveness.announce_start(run_dir)
    try:
        replace_config(run_dir, config)
    except StoreError:
        liveness.release_ticket(Path(run_dir).resolve())
        raise


def set_again(run_dir: Path, overrides: Mapping[str, str]) -> None:
    """Settings that a resume names count, also where they name what config.yaml says and the run had changed since.

    The engine that starts next finds a request for them. Raises StoreError.
    """
    reader = RunReader(run_dir)
    changed = {change.setting for change in reader.changes(later_too=True)}
    given = [setting for setting in overrides if setting in changed]
    if given:
        config = reader.config().model_dump(mode="json")
        liveness.announce_start(run_dir)
        send_command(run_dir, "set", {"changes": {setting: config[setting.split(".")[0]][setting.split(".")[1]] for setting in given}})


@contextlib.contextmanager
def named_for_children(run_dir: Path) -> Iterator[None]:
    """Processes that are started in this block carry the run folder in their environment, so that they are found when it is ended."""
    before = os.environ.get(FOLDER_VARIABLE)
    os.environ[FOLDER_VARIABLE] = str(Path(run_dir).resolve())
    try:
        yield
    finally:
        os.environ.pop(FOLDER_VARIABLE)
        if before is not None:
            os.environ[FOLDER_VARIABLE] = before


def one_engine(run_dir: Path, mode: StartMode, permissions: Permissions, screen: Screen | None) -> int:
    """Train in this process. A request to stop ends it while the libraries load, too. Returns the exit code.

    A run that is broken on purpose has its fault in this process. Raises StoreError for a fault that there is not.
    """
    fault = fault_of(run_dir)
    try:
        with Signals() as signals, signals.at_once(), libraries_stay():
            from rlhf_studio.engine.process.worker import run_engine  # torch and transformers load here, after the cheap checks

            broken = applied_fault(fault)
    except StopRequested as stop:
        if not is_follower(os.environ):
            with liveness.EngineLock(run_dir):
                record_end(run_dir, EventRecord("info", "stop", f"Stopped while the libraries were loading: {stop}."))
        code = STOPPED
    else:
        with broken:
            code = run_engine(run_dir, mode, permissions=permissions, screen=screen)
    # A launcher takes every other code for a crash of its processes; the run folder says how it ended.
    return DONE if code == STOPPED and COORDINATED in os.environ else code


def applied_fault(fault: str) -> contextlib.AbstractContextManager[None]:
    """What a run that is broken on purpose trains inside of; nothing for an empty name, an ordinary run."""
    if not fault:
        return contextlib.nullcontext()
    from rlhf_studio.lessons.faults.wrappers import applied  # loads the engine

    return applied(fault)


def stop(run_dir: Path, *, now: bool, discard: bool = False) -> str:
    """Ask a run to stop, or end it by force. Returns what a person should know. Raises StoreError."""
    if now:
        return force_stop(run_dir, "a person at the command line")
    if not (liveness.is_starting(run_dir) or liveness.is_alive(run_dir)):
        raise StoreError(f"{run_dir} is not running", "not-running")
    send_command(run_dir, "discard" if discard else "stop")
    if RunReader(run_dir).status().state == "loading":
        return _("asked to stop; it still loads, so it ends within some seconds. If it does not: stop {run_dir} --now").format(
            run_dir=run_dir
        )
    if discard:
        return _("asked to stop, without a checkpoint. If it does not end: stop {run_dir} --now").format(run_dir=run_dir)
    return _("asked to stop; a checkpoint of the last finished step is written first. If it does not end: stop {run_dir} --now").format(
        run_dir=run_dir
    )
