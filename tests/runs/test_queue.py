"""The queue: what starts when, and what becomes of runs whose engine or app dies. Few engines and apps are real processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlhf_studio.runs import liveness, queue, studio
from rlhf_studio.runs.checkpoints import NoCheckpoint
from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.launch import engine_processes, kill_engine
from rlhf_studio.runs.liveness import EngineLock, StartTicket, is_alive, is_starting
from rlhf_studio.runs.queue import Dispatcher, Process
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import Origin, StartMode
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import HERE, EndsAtOnce, config, end, open_descriptors, python_environment, step_record, use_fake_engine
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path):
    workspace = Workspace(tmp_path / "workspace")
    yield workspace
    for folder in workspace.folders():  # whatever a failed test has left
        if folder.is_dir():
            kill_engine(folder, grace=0.0)


def check_journal(workspace: Workspace, ids: list[str]) -> None:
    """Each run began once, in this order, and none before the one before it had ended."""
    path = workspace.root / "runs" / ".journal"
    expected = [f"{what} {run_id}" for run_id in ids for what in ("begin", "end")]
    wait_until(lambda: len(path.read_text().splitlines()) >= len(expected))  # an engine says "end" just after it is shown as finished
    assert path.read_text().splitlines() == expected


def state(workspace: Workspace, run_id: str) -> str:
    return workspace.status(run_id).state


def ticks(dispatcher: Dispatcher, number: int = 6) -> None:
    for _ in range(number):
        dispatcher.tick()


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


# --- what starts when --------------------------------------------------------------------------------------------------------


def test_first_in_first_out_one_at_a_time(workspace: Workspace):
    ids = [workspace.submit(config()) for _ in range(4)]
    cancelled = ids.pop(1)
    workspace.cancel(cancelled)
    engine = EndsAtOnce()
    dispatcher = Dispatcher(workspace, engine, interval=3600.0)
    before = open_descriptors()
    dispatcher.stop()  # harmless before it began
    assert dispatcher.start() == []
    for number, run_id in enumerate(ids, start=1):
        wait_until(lambda number=number: len(engine.starts) == number and not dispatcher._tick_lock.locked())
        assert state(workspace, run_id) == "finished"
        dispatcher.wake()  # at once, not after an hour
    wait_until(lambda: not dispatcher._children)
    dispatcher.stop()
    dispatcher.stop()  # and once more
    assert engine.starts == [(run_id, "train") for run_id in ids]
    assert state(workspace, cancelled) == "stopped" and dispatcher.problem == ""
    assert open_descriptors() == before  # tickets and logs are closed
    entries = studio.read(workspace.root).entries
    assert [(entries[run_id].state, entries[run_id].exit_code) for run_id in ids] == [("done", 0)] * 3


def test_who_sees_some_runs_to_their_end_starts_no_others(workspace: Workspace):
    other, *ids = [workspace.submit(config()) for _ in range(3)]
    engine = EndsAtOnce()
    ended = list(Dispatcher(workspace, engine, interval=0.0).run_until_ended(ids))
    assert [(run.run_id, run.state) for run in ended] == [(run_id, "finished") for run_id in ids]
    assert engine.starts == [(run_id, "train") for run_id in ids] and state(workspace, other) == "queued"


def test_stop_and_resume_through_the_queue(workspace: Workspace):
    run_id = workspace.submit(config())
    folder = workspace.run_dir(run_id)
    claim = queue.claim_next(workspace)
    assert claim is not None
    with EngineLock(folder), RunWriter(folder) as writer:
        claim.ticket.close()
        writer.set_state("running")
        writer.commit_step(step_record(1))
        with pytest.raises(StoreError, match="is not waiting"):
            workspace.cancel(run_id)
        writer.set_state("stopped")
    engine = EndsAtOnce()
    dispatcher = Dispatcher(workspace, engine)
    ticks(dispatcher)
    with pytest.raises(NoCheckpoint, match="it has no checkpoint"):
        workspace.resume(run_id)
    assert workspace.queue_position(run_id) is None
    assert workspace.resume(run_id, from_start=True) == 1
    ticks(dispatcher)
    assert engine.starts == [(run_id, "from-start")]


def test_an_engine_that_the_queue_did_not_start_counts(workspace: Workspace):
    """One from a shell holds the queue up, and what it has finished is not run again."""
    first, second = workspace.submit(config()), workspace.submit(config())
    engine = EndsAtOnce()
    dispatcher = Dispatcher(workspace, engine)
    with EngineLock(workspace.run_dir(first)), RunWriter(workspace.run_dir(first)) as writer:
        ticks(dispatcher)
        assert state(workspace, second) == "queued" and workspace.adopt() == [first]
        writer.set_state("running")
        writer.set_state("finished")
    ticks(dispatcher)
    assert engine.starts == [(second, "train")]


@pytest.mark.parametrize("origin", [Origin(program="train.py"), Origin(imported="my loop", controls=[])])
def test_a_run_that_others_train_does_not_hold_the_queue_up(tmp_path: Path, origin: Origin):
    workspace = Workspace(tmp_path)
    folder = workspace.root / "runs" / "theirs"
    create_run(folder, config(), name="theirs", state="running", origin=origin)
    queued, engine = workspace.submit(config()), EndsAtOnce()
    with EngineLock(folder):
        ticks(Dispatcher(workspace, engine))
        assert state(workspace, "theirs") == "running" and engine.starts == [(queued, "train")]


def test_a_damaged_run_does_not_hold_the_queue_up(workspace: Workspace):
    damaged, gone, good = (workspace.submit(config()) for _ in range(3))
    (workspace.run_dir(damaged) / "run.db").write_bytes(b"nonsense" * 1000)
    workspace.run_dir(gone).rename(workspace.root / "elsewhere")
    engine = EndsAtOnce()
    ticks(Dispatcher(workspace, engine))
    entries = studio.read(workspace.root).entries
    assert entries[damaged].state == entries[gone].state == "lost" and "damaged" in entries[damaged].cause
    assert engine.starts == [(good, "train")]


def test_a_run_that_is_just_being_deleted_or_started_by_hand_keeps_its_place(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(liveness, "RETRY_SECONDS", 0.02)
    first, second = workspace.submit(config()), workspace.submit(config())
    ticket = StartTicket(workspace.run_dir(first))
    ticket.take()
    assert queue.claim_next(workspace) is None
    # The same when it happens right after the look at all runs; then the next one may go.
    monkeypatch.setattr(queue.status, "look_at_locks", lambda folder: queue.FREE)
    claim = queue.claim_next(workspace)
    assert claim is not None and claim.run_id == second
    ticket.close()
    assert workspace.queue_position(first) == 1
    claim.ticket.close()


# --- starts that fail --------------------------------------------------------------------------------------------------------


def test_engines_that_die_early(workspace: Workspace, monkeypatch: pytest.MonkeyPatch):
    """Real processes: before the lock, with the lock, without a word after two steps, and by SIGKILL. The next run begins each time."""
    modes = ("unborn", "locked", "crash", "hold")
    ids = dict(zip(modes, [workspace.submit(config()) for _ in modes], strict=True))
    dispatcher = Dispatcher(workspace)
    for mode, run_id in ids.items():
        use_fake_engine(monkeypatch, mode)
        dispatcher.tick()
        reader = workspace.reader(run_id)
        if mode == "hold":
            wait_until(lambda reader=reader: reader.status().state == "running")
            pid = reader.status().pid
            os.kill(pid, signal.SIGKILL)
        status = wait_until(lambda reader=reader: (lambda seen: seen if seen.state in ("failed", "interrupted") else None)(reader.status()))
        early = mode in ("unborn", "locked")
        assert status.state == ("failed" if early else "interrupted"), mode
        assert ("ended before it could begin" in status.cause) == early, mode  # even before the app has noticed
        assert not is_starting(reader.run_dir) and not is_alive(reader.run_dir), mode
        wait_until(lambda: dispatcher._reap() or not dispatcher._children)
        assert workspace.status(run_id).cause == reader.status().cause and workspace.status(run_id).state == status.state, mode
    causes = {mode: workspace.status(run_id).cause for mode, run_id in ids.items()}
    assert "(exit code 2)" in causes["unborn"] and "model.policy: there is no model in this folder" in causes["unborn"]
    assert "(SIGKILL)" in causes["locked"]
    assert "exit code 3" in causes["crash"] and "out of something" in causes["crash"] and workspace.status(ids["crash"]).step == 2
    assert "SIGKILL" in causes["hold"] and "memory" in causes["hold"] and not Path(f"/proc/{pid}").exists()  # no zombie
    assert workspace.resume(ids["unborn"]) == 1
    engine = EndsAtOnce()
    ticks(Dispatcher(workspace, engine))
    assert engine.starts == [(ids["unborn"], "train")]


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


@pytest.mark.parametrize("place", ["start", "claim", "settle"])
def test_a_mistake_with_one_run_is_that_runs_failure(
    place: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """It is said once, with the run, and the run behind it starts."""
    bad, good = (workspace.submit(config()) for _ in range(2))
    engine = EndsAtOnce()

    def mistake(folder: Path) -> None:
        if folder.name == bad:
            raise AttributeError("a mistake")

    def start(folder: Path, mode: StartMode, *, ticket: StartTicket) -> Process:
        mistake(folder)
        return engine(folder, mode, ticket=ticket)

    class Reader(RunReader):
        def stored(self) -> tuple[str, int]:
            mistake(self.run_dir)
            return super().stored()

    if place == "settle":
        claim = queue.claim_next(workspace)
        assert claim is not None and claim.run_id == bad
        claim.ticket.close()
    if place != "start":
        monkeypatch.setattr(queue, "RunReader", Reader)
    ticks(Dispatcher(workspace, start if place == "start" else engine))
    status = workspace.status(bad)
    assert (status.state, status.cause) == ("failed", "The engine could not be started: a mistake")
    assert engine.starts == [(good, "train")] and caplog.text.count("Traceback") == 1


def test_a_mistake_in_the_program_does_not_end_the_thread(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    run_id = workspace.submit(config())
    monkeypatch.setattr(queue, "has_work", lambda workspace: 1 / 0)
    dispatcher = Dispatcher(workspace, EndsAtOnce(), interval=0.01)
    dispatcher.start()
    wait_until(lambda: "division by zero" in dispatcher.problem)
    monkeypatch.undo()
    wait_until(lambda: dispatcher.problem == "" and state(workspace, run_id) == "finished")
    dispatcher.stop()
    assert "The dispatcher failed" in caplog.text


def test_a_queue_that_cannot_be_read_is_said_and_recovers(workspace: Workspace):
    run_id = workspace.submit(config())
    database = workspace.root / "studio.db"
    content = database.read_bytes()
    database.write_bytes(b"nonsense" * 1000)
    dispatcher = Dispatcher(workspace, EndsAtOnce(), interval=0.01)
    dispatcher.start()
    wait_until(lambda: "studio.db is damaged" in dispatcher.problem)
    database.write_bytes(content)
    wait_until(lambda: dispatcher.problem == "" and state(workspace, run_id) == "finished")
    dispatcher.stop()


def test_claims_whose_app_has_died_are_settled(workspace: Workspace):
    """It keeps its place when nothing was started for it; one whose folder is gone is lost, and the next may go."""
    first, second = workspace.submit(config()), workspace.submit(config())
    claim = queue.claim_next(workspace)
    assert claim is not None and claim.run_id == first and state(workspace, first) == "loading"
    claim.ticket.close()  # what the kernel does at the app's death
    assert state(workspace, first) == "queued"
    again = queue.claim_next(workspace)
    assert again is not None and again.run_id == first
    again.ticket.close()
    workspace.run_dir(first).rename(workspace.root / "elsewhere")
    following = queue.claim_next(workspace)
    assert following is not None and following.run_id == second
    following.ticket.close()
    assert studio.read(workspace.root).entries[first].state == "lost"


# --- apps that die and apps that share ---------------------------------------------------------------------------------------


def test_an_app_that_is_killed_and_two_that_share_the_workspace(workspace: Workspace):
    """The run goes on without an app; the next ones adopt it, and never run two engines."""
    ids = [workspace.submit(config()) for _ in range(4)]
    apps = [start_app(workspace, "hold")]
    try:
        wait_until(lambda: workspace.status(ids[0]).step > 1)
        end(apps.pop())
        step = workspace.status(ids[0]).step
        wait_until(lambda: workspace.status(ids[0]).step > step)
        assert [workspace.queue_position(run_id) for run_id in ids] == [None, 1, 2, 3]
        apps += [start_app(workspace, "train") for _ in range(2)]
        assert [app.adopted for app in apps] == [[ids[0]]] * 2  # type: ignore[attr-defined]
        send_command(workspace.run_dir(ids[0]), "stop")
        wait_until(lambda: all(state(workspace, run_id) == "finished" for run_id in ids[1:]), every=0.05)
        assert state(workspace, ids[0]) == "stopped"
        check_journal(workspace, ids)
    finally:
        for app in apps:
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
    assert queue.claim_next(workspace) is None and studio.read(workspace.root).entries[run_id].state == "lost"
    assert state(workspace, run_id) == "failed"


def test_of_many_who_claim_at_one_moment_only_one_gets_it(workspace: Workspace):
    first = [workspace.submit(config()) for _ in range(3)][0]
    beginning, answering, leaving = os.pipe(), os.pipe(), os.pipe()
    children = []
    for _ in range(4):
        children.append(os.fork())
        if children[-1] == 0:
            try:
                os.close(beginning[1])
                os.close(leaving[1])
                os.read(beginning[0], 1)  # until all are there
                claim = queue.claim_next(workspace)
                os.write(answering[1], f"{claim.run_id if claim else 'nothing'}\n".encode())
                os.read(leaving[0], 1)  # and holds it until all have tried
            finally:
                os._exit(0)
    os.close(beginning[1])
    answers = b""
    while answers.count(b"\n") < 4:
        answers += os.read(answering[0], 1000)
    os.close(leaving[1])
    for child in children:
        os.waitpid(child, 0)
    for descriptor in (beginning[0], *answering, leaving[0]):
        os.close(descriptor)
    assert sorted(answers.decode().split()) == sorted([first, "nothing", "nothing", "nothing"])
