import threading
from pathlib import Path

import pytest

from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.heartbeat import Heartbeat
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import step_record
from tests.waiting import wait_until

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


# --- requests ----------------------------------------------------------------------------------------------------------------


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
