"""At the moment of a guarded fork no database of the store is open, and the child holds no start ticket."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from leases import forks

from rlhf_studio.runs import liveness, schema
from rlhf_studio.runs.liveness import StartTicket
from tests.runs.store_helpers import new_run


@pytest.fixture(scope="module", autouse=True)
def hooks() -> Iterator[None]:
    forks.install()  # the hooks stay for the life of the process, and do nothing outside of guarded()
    yield
    sqlite3.connect = forks._connect


def in_a_child(guarded: bool = True) -> int:
    """Fork, and return 0 where the child may use databases, 1 where not."""
    if guarded:
        with forks.guarded():
            child = os.fork()
    else:
        child = os.fork()
    if not child:
        os._exit(0 if forks.begin_worker() and not forks._open else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_waits_until_a_connection_is_closed(tmp_path: Path) -> None:
    connection = schema.connect(new_run(tmp_path / "run") / "run.db", read_only=True)
    asks = threading.Event()
    order: list[str] = []

    def fork() -> None:
        asks.set()
        assert in_a_child() == 0
        order.append("forked")

    thread = threading.Thread(target=fork)
    thread.start()
    assert asks.wait(10)
    thread.join(0.1)  # time to fork, for one that would not wait
    order.append("closes")
    connection.close()
    thread.join(10)
    assert order == ["closes", "forked"]


def test_a_child_of_a_fork_that_could_not_wait_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "PATIENCE", 0.01)
    connection = schema.connect(new_run(tmp_path / "run") / "run.db", read_only=True)
    assert in_a_child() == 1
    connection.close()
    assert in_a_child() == 0


def test_other_forks_and_other_files_do_not_wait(tmp_path: Path) -> None:
    connection = schema.connect(new_run(tmp_path / "run") / "run.db", read_only=True)
    assert in_a_child(guarded=False) == 0
    connection.close()
    feedback = schema.connect(tmp_path / "feedback.db", create=True)
    assert in_a_child() == 0
    feedback.close()


def test_a_worker_holds_no_ticket_of_the_app(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    ticket = StartTicket(folder)
    ticket.take()
    go, says = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        forks.begin_worker()
        os.write(says[1], b"x")
        os.read(go[0], 1)
        os._exit(0)
    os.read(says[0], 1)
    ticket.close()
    assert not liveness.is_starting(folder)  # although the child, which was forked while it was held, lives
    os.write(go[1], b"x")
    os.waitpid(child, 0)


def test_no_fork_finds_the_lock_of_the_locks_held() -> None:
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with liveness._guard:
            held.set()
            let_go.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    threading.Timer(0.05, let_go.set).start()
    child = os.fork()
    if not child:
        os._exit(0 if liveness._guard.acquire(timeout=1) else 1)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
