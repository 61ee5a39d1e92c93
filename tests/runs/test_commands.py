import os
from pathlib import Path

import pytest

from rlhf_studio.runs.commands import send_command
from rlhf_studio.runs.errors import NotRunning, StoreError
from rlhf_studio.runs.liveness import EngineLock, StartTicket, is_alive
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import end, run_python, start_fake
from tests.waiting import wait_until


def test_stopping_a_running_engine(run: Path):
    engine = start_fake(run, "hold")
    try:
        wait_until(lambda: RunReader(run).status().step >= 2)
        assert send_command(run, "stop") == 1
        assert engine.wait(20) == 3
        assert RunReader(run).status().state == "stopped"
    finally:
        end(engine)


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
    code = "import sys; from pathlib import Path; from rlhf_studio.runs.commands import *; print(send_command(Path(sys.argv[1]), 'pause'))"
    with EngineLock(run), RunWriter(run) as writer:
        writer.set_state("running")
        assert run_python(code, run) == "1"
        seq = RunReader(run).status().seq
        (command,) = writer.pending_commands()
        assert command.kind == "pause" and RunReader(run).status().seq == seq  # the app never touches the run's row
        assert RunReader(run).status().pid == os.getpid()
