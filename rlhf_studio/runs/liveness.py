"""Is an engine at work? The kernel answers, never a pid or a file's age.

Two locks in the run folder, on two files that nothing else ever opens:

* ``engine.lock`` (:class:`EngineLock`, POSIX ``lockf``) is held by the engine as long as its process runs. The kernel frees it when
  that process ends, in whatever way, even while a forked helper of the engine still runs.
* ``start.lock`` (:class:`StartTicket`, ``flock``) covers the time before: the app takes it *before* it starts the engine, the
  engine inherits the open file, and gives it up once it holds ``engine.lock``. If app and engine die on the way, it is free.
  An engine started from a shell takes it itself (:func:`announce_start`), because its libraries load for seconds, and writes into
  it who it is: nothing else about such a process says that it is the engine (see :func:`starter_pid`).

So at every moment of a start one of the two is held, and "claimed, but neither is held" means that the engine has ended.
To see both without a gap, look at ``start.lock`` first.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
import threading
import time
from pathlib import Path

from rlhf_studio.child_process.environment import START_FD_VARIABLE
from rlhf_studio.language import S_
from rlhf_studio.runs.errors import AlreadyRunning, StoreError, store_error
from rlhf_studio.system import LOOK, OURS, lock, lock_of_process

ENGINE_LOCK = "engine.lock"
START_LOCK = "start.lock"
RETRY_SECONDS = 0.5
CLOCK_SECONDS = 2.0
_READ_AND_WRITE = os.O_RDWR | OURS

# struct flock of the systems whose layout is known (64 bit); elsewhere the lock is tried for an instant instead of asked for.
_LAYOUTS = {"linux": ("hhqqi0q", (0, 4)), "darwin": ("qqihh", (3, 2))}
_layout = _LAYOUTS.get(sys.platform) if struct.calcsize("P") == 8 else None

# A POSIX lock belongs to the process, and closing ANY descriptor of the file drops it. So the process that holds one must
# never open the file again: it looks here instead. (device, inode) -> pid, because a forked child does not hold the lock.
_held: dict[tuple[int, int], int] = {}
_guard = threading.Lock()
if hasattr(os, "register_at_fork"):  # no fork finds it held
    os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_guard.release)


class EngineLock:
    """The engine's claim on a run folder, from before the models load until the process ends."""

    def __init__(self, run_dir: Path):
        self.path = Path(run_dir) / ENGINE_LOCK
        self._descriptor: int | None = None
        self._key: tuple[int, int] = (0, 0)

    def acquire(self) -> None:
        """Take the lock, trying for at most 0.5 s, and then give up the start ticket if this process inherited one.

        Raises:
            AlreadyRunning: another engine (or this process) holds it.
            StoreError: the folder is gone, or its disk cannot lock files.
        """
        deadline = time.monotonic() + RETRY_SECONDS
        while not self._try():
            if time.monotonic() >= deadline:
                raise _already_running(self.path.parent)
            time.sleep(0.02)
        release_ticket(self.path.parent)

    def _try(self) -> bool:
        with _guard:
            if _held_by_this_process(self.path):
                return False
            try:
                descriptor = os.open(self.path, _READ_AND_WRITE | os.O_CREAT, 0o644)
            except OSError as error:
                raise store_error(error, self.path) from error
            try:
                lock_of_process(descriptor)
            except OSError as error:
                os.close(descriptor)
                if isinstance(error, BlockingIOError | PermissionError):
                    return False
                raise _no_locks(self.path, error) from error
            self._key = _key(os.fstat(descriptor))
            if not _is_same_file(self.path, self._key):  # the run was deleted between opening and locking
                os.close(descriptor)
                raise StoreError(f"The run in {self.path.parent} was deleted.", "missing")
            self._descriptor = descriptor
            _held[self._key] = os.getpid()
            return True

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        with _guard:
            if self._descriptor is not None:
                _held.pop(self._key, None)
                os.close(self._descriptor)
                self._descriptor = None

    def __enter__(self) -> EngineLock:
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


def is_alive(run_dir: Path) -> bool:
    """Whether an engine holds the run's lock now. Asks the kernel without taking the lock, so that a start is never disturbed."""
    return holder_pid(run_dir) is not None


def holder_pid(run_dir: Path) -> int | None:
    """The pid of the engine that holds the lock (0 when the system does not say which), or None when it is free."""
    path = Path(run_dir) / ENGINE_LOCK
    with _guard:
        if _held_by_this_process(path):
            return os.getpid()
        try:
            descriptor = os.open(path, LOOK if _layout else _READ_AND_WRITE)
        except OSError as error:
            if _never_locked(error):
                return None
            raise store_error(error, path) from error  # rather than "dead": a second engine might be started
        try:
            return _ask(descriptor) if _layout else _try_for_an_instant(descriptor)
        finally:
            os.close(descriptor)


def _ask(descriptor: int) -> int | None:
    assert _layout is not None
    format_, (type_at, pid_at) = _layout
    import fcntl

    question = [0] * 5
    question[type_at] = fcntl.F_WRLCK
    answer = struct.unpack(format_, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(format_, *question)))
    return None if answer[type_at] == fcntl.F_UNLCK else answer[pid_at]


def _try_for_an_instant(descriptor: int) -> int | None:
    try:
        lock_of_process(descriptor)
    except (BlockingIOError, PermissionError):
        return 0
    return None


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _held_by_this_process(path: Path) -> bool:
    return any(pid == os.getpid() and _is_same_file(path, key) for key, pid in _held.items())


def _is_same_file(path: Path, key: tuple[int, int]) -> bool:
    try:
        return _key(os.stat(path)) == key
    except OSError:
        return False


def _never_locked(error: OSError) -> bool:
    """No file, or a link in its place (which no lock of ours follows): nobody ever took this lock."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _already_running(folder: Path) -> AlreadyRunning:
    return AlreadyRunning(S_(f"An engine is already working on {folder}. Stop it first, or use another run folder."))


def _no_locks(path: Path, error: OSError) -> StoreError:
    return StoreError(f"The disk of {path.parent} cannot lock files ({error}). Put the run on a local disk.")


class FileLock:
    """An ``flock`` on a file that nothing else opens. It lasts until the last copy of its descriptor is closed, so it ends with a process.

    Args:
        refusal: what is raised when somebody else has it.
        seconds: for which it is tried.
    """

    def __init__(self, path: Path, refusal: StoreError, seconds: float = 0.0):
        self.path, self._refusal, self._seconds = path, refusal, seconds
        self.descriptor: int | None = None

    def take(self) -> None:
        """Take the lock. Raises the refusal, and StoreError when the folder is gone, cannot be written, or cannot lock files."""
        try:
            self.descriptor = os.open(self.path, _READ_AND_WRITE | os.O_CREAT, 0o644)
        except OSError as error:
            raise store_error(error, self.path) from error
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                lock(self.descriptor)
                os.truncate(self.descriptor, 0)  # whoever held it before says nothing any more
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    self.release()
                    raise self._refusal from None
            except OSError as error:
                self.release()
                raise _no_locks(self.path, error) from error
            time.sleep(0.01)

    def release(self) -> None:
        """Close this process's copy. It stays taken while another process has its own. Never LOCK_UN: that frees it for all."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    close = release


class StartTicket(FileLock):
    """The app's claim on a run while it starts the engine; handed to the engine as an inherited descriptor.

    It is tried for at most 0.5 s: a reader may look at it for an instant.
    """

    def __init__(self, run_dir: Path):
        folder = Path(run_dir)
        super().__init__(folder / START_LOCK, AlreadyRunning(S_(f"The run in {folder} is being started by somebody else.")), RETRY_SECONDS)


def is_starting(run_dir: Path) -> bool:
    """Whether somebody holds the start ticket: an engine is being started, or was and does not hold its own lock yet."""
    return is_locked(Path(run_dir) / START_LOCK)


def is_locked(path: Path) -> bool:
    """Whether somebody holds a :class:`FileLock` on this file. Asked so that others may ask at the same time; raises StoreError."""
    try:
        descriptor = os.open(path, LOOK)
    except OSError as error:
        if _never_locked(error):
            return False
        raise store_error(error, path) from error
    try:
        lock(descriptor, shared=True)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def announce_start(run_dir: Path) -> None:
    """First thing in an engine process, before the slow imports: from now on the run shows as starting.

    Takes the start ticket, unless the app took it and handed it over; :meth:`EngineLock.acquire` gives it up.

    Raises:
        AlreadyRunning: an engine works on the run, or another is just being started.
        StoreError: the folder is gone or cannot be written.
    """
    folder = Path(run_dir).resolve()
    if is_alive(folder):
        raise _already_running(folder)
    if _inherited_ticket(folder) is None:
        ticket = StartTicket(folder)
        ticket.take()
        assert ticket.descriptor is not None
        try:
            os.write(ticket.descriptor, f"{os.getpid()} {_started_at(os.getpid())}\n".encode())
        except OSError as error:
            ticket.close()
            raise store_error(error, ticket.path) from error
        os.environ[START_FD_VARIABLE] = str(ticket.descriptor)


def starter_pid(run_dir: Path) -> int | None:
    """The pid of an engine from a shell that holds the start ticket; None when nobody holds it or the holder did not say.

    The process must have begun when the ticket says: a pid may have gone to another process since. Raises StoreError.
    """
    if not is_starting(run_dir):
        return None
    path = Path(run_dir) / START_LOCK
    try:
        descriptor = os.open(path, LOOK)
        try:
            words = os.read(descriptor, 100).decode("ascii", "replace").split()
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise store_error(error, path) from error
    if len(words) != 2 or not words[0].isdecimal():
        return None
    pid, noted = int(words[0]), words[1]
    began = _started_at(pid)
    # Systems give this time to a hundredth of a second, and count it from a start of the clock that is known to a second.
    return pid if began is not None and _is_number(noted) and abs(began - float(noted)) <= CLOCK_SECONDS else None


def _started_at(pid: int) -> float | None:
    """When a living process began, in seconds since 1970; None when there is none (one that only waits for its parent is none)."""
    import psutil  # here, because only a start from a shell and an end by force need it

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except (psutil.Error, OverflowError):
        return None


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def _inherited_ticket(run_dir: Path) -> int | None:
    """The descriptor named by the environment, if it really is this run's ticket: a helper process has the variable alone."""
    text = os.environ.get(START_FD_VARIABLE, "")
    try:
        same = text.isdigit() and _key(os.fstat(int(text))) == _key(os.stat(run_dir / START_LOCK))
    except OSError:
        return None
    return int(text) if same else None


def release_ticket(run_dir: Path) -> None:
    """Give up the start ticket that this process holds or inherited, if there is one."""
    descriptor = _inherited_ticket(run_dir)
    os.environ.pop(START_FD_VARIABLE, None)
    if descriptor is not None:
        os.close(descriptor)
