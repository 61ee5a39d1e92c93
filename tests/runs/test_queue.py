"""The queue with real engine processes, real apps, and their sudden deaths."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlhf_studio.runs import claims, liveness, studio
from rlhf_studio.runs.checkpoints import NoCheckpoint
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.launch import engine_processes, kill_engine, start_engine
from rlhf_studio.runs.liveness import EngineLock, StartTicket, is_alive, is_starting
from rlhf_studio.runs.queue import Dispatcher
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.start import StartMode
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import HERE, config, end, new_run, open_descriptors, python_environment, start_fake, use_fake_engine
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path):
    workspace = Workspace(tmp_path / "workspace")
    yield workspace
    for folder in workspace.folders():  # whatever a failed test has left
        if folder.is_dir():
            kill_engine(folder, grace=0.0)


def journal(workspace: Workspace) -> list[str]:
    path = workspace.root / "runs" / ".journal"
    return path.read_text().splitlines() if path.exists() else []


def check_journal(workspace: Workspace, ids: list[str]) -> None:
    """Each run began once, in this order, and none before the one before it had ended."""
    expected = [f"{what} {run_id}" for run_id in ids for what in ("begin", "end")]
    wait_until(lambda: len(journal(workspace)) >= len(expected))  # an engine says "end" just after it is shown as finished
    assert journal(workspace) == expected


def state(workspace: Workspace, run_id: str) -> str:
    return workspace.status(run_id).state


def tick_until(dispatcher: Dispatcher, workspace: Workspace, run_id: str, *states: str) -> None:
    def there() -> bool:
        dispatcher.tick()
        return state(workspace, run_id) in states

    wait_until(there)


def start_app(workspace: Workspace, mode: str) -> "subprocess.Popen[bytes]":
    app = subprocess.Popen(
        [sys.executable, str(HERE / "fake_app.py"), str(workspace.root)],
        env=python_environment(RLHF_STUDIO_FAKE_ENGINE=mode),
        stdout=subprocess.PIPE,
    )
    assert app.stdout is not None
    line = app.stdout.readline()
    app.stdout.close()
    assert line.startswith(b"begun")
    app.adopted = line.decode().split()[1:]  # type: ignore[attr-defined]
    return app


# --- one app -----------------------------------------------------------------------------------------------------------------


def test_first_in_first_out_one_at_a_time(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    use_fake_engine(monkeypatch, "train")
    ids = [workspace.submit(config()) for _ in range(4)]
    cancelled = ids.pop(1)
    workspace.cancel(cancelled)
    dispatcher = Dispatcher(workspace, interval=0.01)
    before = open_descriptors()
    dispatcher.stop()  # harmless before it began
    assert dispatcher.start() == []
    wait_until(lambda: all(state(workspace, run_id) == "finished" for run_id in ids))
    wait_until(lambda: not dispatcher._children)
    dispatcher.stop()
    dispatcher.stop()  # and once more
    check_journal(workspace, ids)
    assert state(workspace, cancelled) == "stopped" and dispatcher.problem == ""
    assert open_descriptors() == before  # tickets and logs are closed
    entries = studio.read(workspace.root).entries
    assert [(entries[run_id].state, entries[run_id].exit_code) for run_id in ids] == [("done", 0)] * 3


def test_ended_engines_leave_no_zombies(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    use_fake_engine(monkeypatch, "hold")
    run_id = workspace.submit(config())
    dispatcher = Dispatcher(workspace)
    tick_until(dispatcher, workspace, run_id, "running")
    pid = workspace.status(run_id).pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: dispatcher.tick() is None and not Path(f"/proc/{pid}").exists())
    status = workspace.status(run_id)
    assert status.state == "interrupted" and "SIGKILL" in status.cause and "memory" in status.cause


def test_waking_starts_a_run_at_once(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    use_fake_engine(monkeypatch, "train")
    dispatcher = Dispatcher(workspace, interval=3600.0)
    dispatcher.start()
    run_id = workspace.submit(config())
    dispatcher.wake()
    wait_until(lambda: state(workspace, run_id) == "finished")
    dispatcher.stop()


def test_stop_and_resume_through_the_queue(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    use_fake_engine(monkeypatch, "hold")
    run_id = workspace.submit(config())
    dispatcher = Dispatcher(workspace)
    tick_until(dispatcher, workspace, run_id, "running")
    with pytest.raises(StoreError, match="is not waiting"):
        workspace.cancel(run_id)
    send_command(workspace.run_dir(run_id), "stop")
    tick_until(dispatcher, workspace, run_id, "stopped")
    wait_until(lambda: dispatcher.tick() is None and not dispatcher._children)
    step = workspace.status(run_id).step
    with pytest.raises(NoCheckpoint, match="it has no checkpoint"):
        workspace.resume(run_id)
    assert workspace.queue_position(run_id) is None
    assert workspace.resume(run_id, from_start=True) == 1
    seen = []

    def start(folder: Path, mode: StartMode, *, ticket: StartTicket) -> subprocess.Popen[bytes]:
        seen.append(mode)
        return start_engine(folder, mode, ticket=ticket)

    monkeypatch.setattr(dispatcher, "_start_engine", start)
    dispatcher.tick()
    assert seen == ["from-start"] and state(workspace, run_id) in ("loading", "running")  # never "stopped" again
    wait_until(lambda: workspace.status(run_id).step > step)
    send_command(workspace.run_dir(run_id), "stop")
    tick_until(dispatcher, workspace, run_id, "stopped")


def test_a_run_started_from_a_shell_holds_the_queue_up(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    use_fake_engine(monkeypatch, "train")
    shell = new_run(workspace.root / "runs" / "from-a-shell")
    engine = start_fake(shell, "hold")
    wait_until(lambda: state(workspace, "from-a-shell") == "running")
    run_id = workspace.submit(config())
    dispatcher = Dispatcher(workspace)
    for _ in range(5):
        dispatcher.tick()
    assert state(workspace, run_id) == "queued" and workspace.adopt() == ["from-a-shell"]
    end(engine)
    tick_until(dispatcher, workspace, run_id, "finished")


def test_a_queued_run_that_somebody_ran_from_a_shell_is_not_run_again(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    use_fake_engine(monkeypatch, "train")
    first, second = workspace.submit(config()), workspace.submit(config())
    assert start_fake(workspace.run_dir(first), "train").wait(20) == 0
    assert state(workspace, first) == "finished"
    dispatcher = Dispatcher(workspace)
    tick_until(dispatcher, workspace, second, "finished")
    check_journal(workspace, [first, second])


def test_a_damaged_run_does_not_hold_the_queue_up(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    use_fake_engine(monkeypatch, "train")
    damaged, gone, good = (workspace.submit(config()) for _ in range(3))
    (workspace.run_dir(damaged) / "run.db").write_bytes(b"nonsense" * 1000)
    workspace.run_dir(gone).rename(workspace.root / "elsewhere")
    tick_until(Dispatcher(workspace), workspace, good, "finished")
    entries = studio.read(workspace.root).entries
    assert entries[damaged].state == entries[gone].state == "lost" and "damaged" in entries[damaged].cause


def test_a_run_that_is_just_being_deleted_or_started_by_hand_keeps_its_place(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(liveness, "RETRY_SECONDS", 0.02)
    first, second = workspace.submit(config()), workspace.submit(config())
    ticket = StartTicket(workspace.run_dir(first))
    ticket.take()
    assert claims.claim_next(workspace) is None
    # The same when it happens right after the look at all runs; then the next one may go.
    monkeypatch.setattr(claims.status, "look_at_locks", lambda folder: claims.FREE)
    claim = claims.claim_next(workspace)
    assert claim is not None and claim.run_id == second
    ticket.close()
    assert workspace.queue_position(first) == 1
    claim.ticket.close()


def test_only_one_claim_at_a_time(workspace: Workspace):
    first, second = workspace.submit(config()), workspace.submit(config())
    claim = claims.claim_next(workspace)
    assert claim is not None and claim.run_id == first
    assert claims.claim_next(workspace) is None and workspace.queue_position(second) == 1
    claim.ticket.close()


# --- engines that die early --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["unborn", "locked"])
def test_an_engine_that_dies_before_it_writes_is_shown_as_failed(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, mode: str):
    use_fake_engine(monkeypatch, mode)
    run_id = workspace.submit(config())
    dispatcher = Dispatcher(workspace)
    dispatcher.tick()
    reader = workspace.reader(run_id)
    status = wait_until(lambda: (lambda seen: seen if seen.state != "loading" else None)(reader.status()))
    assert status.state == "failed" and "ended before it could begin" in status.cause  # even before the app has noticed
    assert not is_starting(workspace.run_dir(run_id)) and not is_alive(workspace.run_dir(run_id))
    wait_until(lambda: dispatcher.tick() is None and not dispatcher._children)
    status = workspace.status(run_id)
    assert status.state == "failed" and reader.status() == status
    if mode == "unborn":
        assert "(exit code 2)" in status.cause and "model.policy: there is no model in this folder" in status.cause
    else:
        assert "(SIGKILL)" in status.cause
    use_fake_engine(monkeypatch, "train")
    assert workspace.resume(run_id) == 1
    tick_until(dispatcher, workspace, run_id, "finished")


def test_an_engine_that_dies_in_the_middle_is_interrupted_and_the_next_begins(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    use_fake_engine(monkeypatch, "crash")
    first, second = workspace.submit(config()), workspace.submit(config())
    dispatcher = Dispatcher(workspace)
    tick_until(dispatcher, workspace, first, "interrupted")
    tick_until(dispatcher, workspace, second, "interrupted")
    wait_until(lambda: dispatcher.tick() is None and not dispatcher._children)
    status = workspace.status(first)
    assert status.step == 2 and "exit code 3" in status.cause and "out of something" in status.cause


def test_a_start_that_fails_is_the_runs_failure(workspace: Workspace):
    ids = [workspace.submit(config()) for _ in range(2)]

    def cannot(folder: Path, resume: bool, *, ticket: StartTicket) -> subprocess.Popen[bytes]:
        raise OSError(11, "Resource temporarily unavailable")

    dispatcher = Dispatcher(workspace, start=cannot)
    dispatcher.tick()
    status = workspace.status(ids[0])
    assert status.state == "failed" and "could not be started: " in status.cause and "temporarily unavailable" in status.cause
    assert not is_starting(workspace.run_dir(ids[0])) and state(workspace, ids[1]) == "queued"
    assert workspace.resume(ids[0]) == 2


def test_a_mistake_in_the_program_does_not_end_the_thread(workspace: Workspace, caplog: pytest.LogCaptureFixture):
    run_id = workspace.submit(config())
    calls = []

    def broken(folder: Path, resume: bool, *, ticket: StartTicket) -> subprocess.Popen[bytes]:
        calls.append(folder)
        raise RuntimeError("a mistake")

    dispatcher = Dispatcher(workspace, start=broken, interval=0.01)
    dispatcher.start()
    wait_until(lambda: state(workspace, run_id) == "failed")  # given back, tried again, given up
    dispatcher.stop()
    assert len(calls) == claims.MAX_ATTEMPTS and "Resume tries again" in workspace.status(run_id).cause
    assert "a mistake" in caplog.text


def test_a_queue_that_cannot_be_read_is_said_and_recovers(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    use_fake_engine(monkeypatch, "train")
    run_id = workspace.submit(config())
    queue = workspace.root / "studio.db"
    content = queue.read_bytes()
    queue.write_bytes(b"nonsense" * 1000)
    dispatcher = Dispatcher(workspace, interval=0.01)
    dispatcher.start()
    wait_until(lambda: "studio.db is damaged" in dispatcher.problem)
    queue.write_bytes(content)
    wait_until(lambda: state(workspace, run_id) == "finished")
    wait_until(lambda: dispatcher.problem == "")
    dispatcher.stop()


def test_settling_claims_of_runs_that_are_gone_or_damaged(workspace: Workspace):
    run_id, other = workspace.submit(config()), workspace.submit(config())
    claim = claims.claim_next(workspace)
    assert claim is not None and state(workspace, run_id) == "loading"
    claim.ticket.close()
    workspace.run_dir(run_id).rename(workspace.root / "elsewhere")
    following = claims.claim_next(workspace)
    assert following is not None and following.run_id == other
    following.ticket.close()
    assert studio.read(workspace.root).entries[run_id].state == "lost"


def test_an_engine_in_this_very_process_counts(workspace: Workspace):
    first, second = workspace.submit(config()), workspace.submit(config())
    with EngineLock(workspace.run_dir(first)), RunWriter(workspace.run_dir(first)) as writer:
        writer.set_state("running")
        assert claims.claim_next(workspace) is None
        writer.set_state("finished")
    claim = claims.claim_next(workspace)
    assert claim is not None and claim.run_id == second
    claim.ticket.close()


# --- apps that die and apps that share ---------------------------------------------------------------------------------------


def test_the_app_is_killed_and_another_adopts_the_run(workspace: Workspace):
    ids = [workspace.submit(config()) for _ in range(3)]
    app = start_app(workspace, "hold")
    wait_until(lambda: workspace.status(ids[0]).step > 1)
    end(app)
    step = workspace.status(ids[0]).step
    wait_until(lambda: workspace.status(ids[0]).step > step)  # the run goes on
    assert [workspace.queue_position(run_id) for run_id in ids] == [None, 1, 2]
    app = start_app(workspace, "train")
    try:
        assert app.adopted == [ids[0]]  # type: ignore[attr-defined]
        send_command(workspace.run_dir(ids[0]), "stop")
        wait_until(lambda: state(workspace, ids[2]) == "finished")
        assert state(workspace, ids[0]) == "stopped"
        check_journal(workspace, ids)
    finally:
        end(app)


def test_the_app_and_the_engine_die_while_it_is_starting(workspace: Workspace):
    run_id = workspace.submit(config())
    app = start_app(workspace, "gate")
    folder = workspace.run_dir(run_id)
    wait_until(lambda: studio.read(workspace.root).entries[run_id].pid is not None)
    assert workspace.status(run_id).state == "loading" and workspace.status(run_id).phase == "Starting the engine"
    end(app)
    assert is_starting(folder) and state(workspace, run_id) == "loading"  # the engine is still coming up, without any app
    (pid,) = engine_processes(folder)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: state(workspace, run_id) == "failed", seconds=5.0)
    assert RunReader(folder).status().state == "failed"
    app = start_app(workspace, "train")
    try:
        wait_until(lambda: studio.read(workspace.root).entries[run_id].state == "lost")
        assert state(workspace, run_id) == "failed"
    finally:
        end(app)


def test_the_app_dies_between_claiming_and_starting(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    use_fake_engine(monkeypatch, "train")
    first, second = workspace.submit(config()), workspace.submit(config())
    claim = claims.claim_next(workspace)
    assert claim is not None and claim.run_id == first and state(workspace, first) == "loading"
    claim.ticket.close()  # what the kernel does at its death
    assert state(workspace, first) == "queued"
    dispatcher = Dispatcher(workspace)
    tick_until(dispatcher, workspace, second, "finished")
    assert journal(workspace)[0] == f"begin {first}"  # it kept its place


def test_two_apps_on_one_workspace_never_run_two_engines(workspace: Workspace):
    ids = [workspace.submit(config()) for _ in range(6)]
    apps = [start_app(workspace, "train") for _ in range(2)]
    try:
        wait_until(lambda: all(state(workspace, run_id) == "finished" for run_id in ids), seconds=40.0)
    finally:
        for app in apps:
            end(app)
    check_journal(workspace, ids)


CLAIM = """
import sys
from pathlib import Path
from rlhf_studio.runs import claims
from rlhf_studio.runs.workspace import Workspace
workspace = Workspace(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
claim = claims.claim_next(workspace)
print(claim.run_id if claim else "nothing", flush=True)
sys.stdin.readline()
"""


def test_of_many_who_claim_at_one_moment_only_one_gets_it(workspace: Workspace):
    first = [workspace.submit(config()) for _ in range(3)][0]
    apps = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIM, str(workspace.root)],
            env=python_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for _ in range(4)
    ]
    for app in apps:
        assert app.stdout is not None and app.stdout.readline() == "ready\n"
    for app in apps:
        app.stdin.write("go\n")  # type: ignore[union-attr]
        app.stdin.flush()  # type: ignore[union-attr]
    answers = sorted(app.stdout.readline().strip() for app in apps)  # type: ignore[union-attr]
    for app in apps:
        app.communicate("end\n")
    assert answers == sorted([first, "nothing", "nothing", "nothing"])
