import os
import threading
from pathlib import Path

import pytest

from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import NotRunning, StoreError
from rlhf_studio.runs.liveness import EngineLock, StartTicket, is_alive
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.writer import Heartbeat, RunWriter
from tests.runs.store_helpers import in_child, step_record
from tests.waiting import wait_until


def test_a_request_while_the_engine_is_starting_reaches_it(run: Path):
    ticket = StartTicket(run)
    ticket.take()
    send_command(run, "stop")
    with EngineLock(run):
        send_command(run, "checkpoint")  # the lock is held, the database is not open yet
        ticket.close()
        with RunWriter(run) as writer:
            assert [command.kind for command in writer.pending_commands()] == ["stop", "checkpoint"]
            writer.set_state("running")
            assert len(writer.pending_commands()) == 2


@pytest.mark.parametrize("state", [None, "running", "finished"])
def test_a_request_nobody_would_read_is_refused(run: Path, state: str | None):
    if state:
        with RunWriter(run) as writer:
            writer.set_state(state)  # type: ignore[arg-type]
    with pytest.raises(NotRunning, match="is not running, so there is nothing to stop") as caught:
        send_command(run, "stop")
    assert caught.value.reason == "not-running"
    with RunWriter(run) as writer:
        assert writer.pending_commands() == []


def test_an_engine_that_has_ended_and_is_leaving_takes_no_requests(run: Path):
    with EngineLock(run), RunWriter(run) as writer:
        writer.set_state("stopped")
        assert is_alive(run)
        with pytest.raises(NotRunning):
            send_command(run, "checkpoint")


def test_bad_requests(run: Path, tmp_path: Path):
    with pytest.raises(ValueError, match="unknown command 'explode'; use one of checkpoint, stop, discard, pause, continue, step"):
        send_command(run, "explode")  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="There is no run"):
        send_command(tmp_path / "nowhere", "stop")


def test_sending_from_another_process_does_not_disturb_the_engine(run: Path):
    with EngineLock(run), RunWriter(run) as writer:
        writer.set_state("running")
        assert in_child(lambda: send_command(run, "pause")) == "1"
        seq = RunReader(run).status().seq
        (command,) = writer.pending_commands()
        assert command.kind == "pause" and RunReader(run).status().seq == seq  # the app never touches the run's row
        assert RunReader(run).status().pid == os.getpid()


def test_requests_reach_the_engine_in_order_and_once(run: Path):
    with EngineLock(run), RunWriter(run) as writer:
        writer.set_state("running")
        send_command(run, "checkpoint")
        number = send_command(run, "stop")
        first, second = writer.pending_commands()
        assert (first.kind, second.id, second.kind) == ("checkpoint", number, "stop")
        writer.acknowledge(first.id, "saved")
        assert writer.pending_commands() == [second]
        for unknown in (first.id, 99):
            with pytest.raises(StoreError, match=f"no open request {unknown}"):
                writer.acknowledge(unknown, "again")


def test_requests_that_came_too_late_do_not_stop_the_next_start(run: Path):
    with EngineLock(run):
        with RunWriter(run) as writer:
            writer.set_state("running")
            send_command(run, "stop")
            writer.set_state("finished")
            assert writer.pending_commands() == []
        with RunWriter(run) as writer:
            writer.set_state("running")
            send_command(run, "stop")  # and then the engine is killed: no end is recorded
        with RunWriter(run) as writer:
            assert writer.pending_commands() == []


# --- heartbeat ---------------------------------------------------------------------------------------------------------------


def test_the_heartbeat_goes_on_beside_the_writer(run: Path):
    reader = RunReader(run)

    def beat() -> float | None:
        with reader._reading() as connection:
            return connection.execute("SELECT at FROM heartbeat").fetchone()[0]

    with RunWriter(run) as writer, Heartbeat(run, interval=0.01) as heartbeat:
        first = wait_until(beat)
        for step in range(1, 20):
            writer.commit_step(step_record(step))
        wait_until(lambda: (beat() or 0) > first)
        assert heartbeat.problem is None
        age = reader.status().heartbeat_age
        assert age is not None and 0 <= age < 20
    assert not any(thread.name == "heartbeat" for thread in threading.enumerate())


def test_a_heartbeat_that_fails_says_so_and_recovers(run: Path, tmp_path: Path):
    heartbeat = Heartbeat(run, interval=0.01)
    (run / "run.db").rename(tmp_path / "away")
    with heartbeat:
        wait_until(lambda: isinstance(heartbeat.problem, StoreError))
        (tmp_path / "away").rename(run / "run.db")
        wait_until(lambda: heartbeat.problem is None)


def test_stopping_a_heartbeat_that_never_began_or_never_succeeded(run: Path, tmp_path: Path):
    Heartbeat(run).stop()
    with Heartbeat(tmp_path / "nowhere", interval=0.01) as heartbeat:
        wait_until(lambda: heartbeat.problem)
