"""The locks, tried with real processes: they belong to processes, so one process alone proves nothing."""

import fcntl
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from rlhf_studio.child_process.environment import START_FD_VARIABLE
from rlhf_studio.runs import liveness
from rlhf_studio.runs.errors import AlreadyRunning, StoreError
from rlhf_studio.runs.liveness import EngineLock, StartTicket, holder_pid, is_alive, is_starting
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.writer import RunWriter
from tests.runs.store_helpers import end, in_child, open_descriptors, start_fake
from tests.waiting import wait_until


@pytest.fixture(params=["asked", "tried"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of looking at the lock: by F_GETLK, and by trying it on systems whose struct flock is not known."""
    if request.param == "tried":
        monkeypatch.setattr(liveness, "_layout", None)
    return request.param


def test_the_lock_shows_while_it_is_held_and_refuses_a_second_engine(tmp_path: Path, way: str):
    assert not is_alive(tmp_path) and os.listdir(tmp_path) == []  # looking creates nothing
    lock = EngineLock(tmp_path)
    with lock:
        for _ in range(2):  # looking from inside the engine does not drop the lock
            assert is_alive(tmp_path) and holder_pid(tmp_path) == os.getpid()
            with pytest.raises(AlreadyRunning):
                EngineLock(tmp_path).acquire()
        assert in_child(lambda: holder_pid(tmp_path)) == str(os.getpid() if way == "asked" else 0)
        assert in_child(EngineLock(tmp_path).acquire).startswith("An engine is already working on")
    assert not is_alive(tmp_path) and in_child(lambda: is_alive(tmp_path)) == "False"
    lock.release()  # once more is harmless
    assert in_child(EngineLock(tmp_path).acquire) == "None"


def test_another_process_is_the_engine_until_its_death(run: Path):
    """A real one, with a forked helper that outlives it. Two more engines are refused, a second writer too."""
    engine = start_fake(run, "forked")
    try:
        wait_until(lambda: RunReader(run).status().step > 0)
        assert holder_pid(run) == engine.pid == RunReader(run).status().pid
        second = start_fake(run, "hold")
        assert second.wait(20) == 1 and holder_pid(run) == engine.pid
        with pytest.raises(AlreadyRunning, match=f"process {engine.pid}"):
            RunWriter(run)
        assert (run.parent / ".journal").read_text() == f"begin {run.name}\n"
        end(engine)
        assert not is_alive(run)  # at once: the kernel freed it, while the helper is still there
    finally:
        os.killpg(engine.pid, signal.SIGKILL)


def test_looking_never_disturbs_an_engine_that_is_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(liveness, "RETRY_SECONDS", 0.0)  # the first try must do
    looking = os.fork()
    if looking == 0:
        while True:
            is_alive(tmp_path)
    stop, looks = threading.Event(), [0]

    def look() -> None:
        while not stop.is_set():
            is_alive(tmp_path)
            is_starting(tmp_path)
            looks[0] += 1

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(100):
            with EngineLock(tmp_path):
                pass
        wait_until(lambda: looks[0] > 10)
    finally:
        stop.set()
        thread.join()
        os.kill(looking, signal.SIGKILL)
        os.waitpid(looking, 0)


# --- what can be wrong with the file -----------------------------------------------------------------------------------------


def test_a_link_in_place_of_a_lock_is_never_followed(tmp_path: Path):
    target = tmp_path / "target"
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (liveness.ENGINE_LOCK, liveness.START_LOCK):
        (folder / name).symlink_to(target)
    assert not is_alive(folder) and not is_starting(folder)
    for lock in (EngineLock(folder).acquire, StartTicket(folder).take):
        with pytest.raises(StoreError):
            lock()
    assert not target.exists()


def test_a_lock_that_cannot_be_looked_at_is_not_called_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def too_many(*arguments: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", too_many)
    for look in (is_alive, is_starting):
        with pytest.raises(StoreError, match="Too many open files"):
            look(tmp_path)


def test_a_folder_that_is_gone(tmp_path: Path):
    for lock in (EngineLock(tmp_path / "gone").acquire, StartTicket(tmp_path / "gone").take):
        with pytest.raises(StoreError, match="does not exist") as caught:
            lock()
        assert caught.value.reason == "missing"
    (tmp_path / "file").write_text("")
    assert not is_alive(tmp_path / "file") and not is_starting(tmp_path / "file")


def test_a_run_deleted_between_opening_and_locking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "run"
    folder.mkdir()
    lockf = fcntl.lockf

    def delete_first(descriptor: int, operation: int) -> None:
        folder.rename(tmp_path / "trash")
        lockf(descriptor, operation)

    monkeypatch.setattr(fcntl, "lockf", delete_first)
    with pytest.raises(StoreError, match="was deleted"):
        EngineLock(folder).acquire()
    monkeypatch.setattr(fcntl, "lockf", lockf)
    assert not is_alive(tmp_path / "trash")


def test_a_disk_that_cannot_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    before = open_descriptors()
    for lock in (EngineLock(tmp_path).acquire, StartTicket(tmp_path).take):
        with pytest.raises(StoreError, match="cannot lock files .* Put the run on a local disk"):
            lock()
    assert open_descriptors() == before


# --- the start ticket --------------------------------------------------------------------------------------------------------


def test_the_ticket_is_exclusive_and_passes_to_the_child(tmp_path: Path):
    assert not is_starting(tmp_path) and os.listdir(tmp_path) == []
    ticket = StartTicket(tmp_path)
    ticket.take()
    assert is_starting(tmp_path)
    with pytest.raises(AlreadyRunning, match="being started by somebody else"):
        StartTicket(tmp_path).take()
    assert ticket.descriptor is not None
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(ticket.descriptor,))
    ticket.close()
    ticket.close()  # harmless
    assert is_starting(tmp_path)  # the child alone holds it now
    end(child)
    assert child.stdin is not None
    child.stdin.close()
    assert not is_starting(tmp_path)


def test_the_engine_gives_the_ticket_up_once_it_has_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ticket = StartTicket(tmp_path)
    ticket.take()
    monkeypatch.setenv(START_FD_VARIABLE, str(ticket.descriptor))
    with EngineLock(tmp_path):
        assert is_alive(tmp_path) and not is_starting(tmp_path)
        assert START_FD_VARIABLE not in os.environ


def test_a_wrong_descriptor_in_the_environment_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mine").write_text("mine")
    with (tmp_path / "mine").open() as mine:
        for text in (str(mine.fileno()), "987654", "nonsense"):
            monkeypatch.setenv(START_FD_VARIABLE, text)
            ticket = StartTicket(tmp_path)
            ticket.take()
            with EngineLock(tmp_path):
                assert mine.read(0) == "" and os.fstat(mine.fileno())
            assert is_starting(tmp_path)  # the variable named something else, so the ticket was not given up
            ticket.close()


def test_an_engine_from_a_shell_announces_itself(run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(START_FD_VARIABLE, raising=False)
    with RunWriter(run) as writer:
        writer.set_state("loading")
    assert RunReader(run).status().state == "interrupted"
    liveness.announce_start(run)
    assert is_starting(run) and RunReader(run).status().state == "loading"
    liveness.announce_start(run)  # holds it already, as when the app has handed it over
    assert "being started by somebody else" in in_child(lambda: announce_anew(run))
    with EngineLock(run):
        assert not is_starting(run) and START_FD_VARIABLE not in os.environ
        assert "An engine is already working on" in in_child(lambda: announce_anew(run))
        with pytest.raises(AlreadyRunning):
            liveness.announce_start(run)


def announce_anew(run: Path) -> None:
    """As a process that inherited nothing."""
    os.environ.pop(START_FD_VARIABLE, None)
    liveness.announce_start(run)


def test_two_that_look_at_a_lock_at_once_do_not_take_each_other_for_its_holder(tmp_path: Path):
    path = tmp_path / "a.lock"
    with path.open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not liveness.is_locked(path)
    with path.open("w") as holding:
        fcntl.flock(holding, fcntl.LOCK_EX)
        assert liveness.is_locked(path)
