"""What systems do differently, in one place: how a file is opened, locked and removed, and how processes are ended.

On Windows nothing of this was tried: its half is written after the documentation, and tests run it on Linux with the other half hidden
(``tests/test_without_posix.py``). Links are followed there where other systems refuse them.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

WINDOWS = sys.platform == "win32"
KILL: signal.Signals = getattr(signal, "SIGKILL", signal.SIGTERM)
"""The signal that no process can refuse; on Windows every signal is one."""

NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
OURS: int = NOFOLLOW | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""Flags for every file of a folder that others may write to: no link, not for child processes, and bytes as they are."""
LOOK: int = os.O_RDONLY | OURS | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
"""The same, to read: a pipe in the file's place is not waited for, a terminal does not become ours."""

if sys.platform == "win32":
    import msvcrt

    FAR = 1 << 30  # a byte behind all that these files hold: other processes cannot read what is locked

    def lock(descriptor: int, *, shared: bool = False) -> None:
        """Lock an open file at once, or raise BlockingIOError. There are no shared locks: who only looks has it for an instant."""
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(*error.args) from error
        finally:
            os.lseek(descriptor, before, os.SEEK_SET)

    lock_of_process = lock

    def hand_over(descriptor: int) -> dict[str, Any]:
        """How a child is started that goes on alone. It cannot be given the lock, and takes its own as soon as this process frees it."""
        return {"creationflags": 0x00000200}  # CREATE_NEW_PROCESS_GROUP: no Ctrl-C of this terminal

    def has_ended(process: subprocess.Popen[bytes]) -> bool:
        """Whether a child has ended."""
        return process.poll() is not None

    def end_group(pid: int) -> None:
        """End a process and all that it has started, now. Raises ProcessLookupError."""
        import psutil

        try:
            process = psutil.Process(pid)
            for one in [*process.children(recursive=True), process]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        except psutil.NoSuchProcess:
            raise ProcessLookupError(pid) from None

else:
    import fcntl

    def lock(descriptor: int, *, shared: bool = False) -> None:
        """``flock`` an open file at once, or raise BlockingIOError. It lasts until the last copy of the descriptor is closed."""
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)

    def lock_of_process(descriptor: int) -> None:
        """``lockf`` an open file at once, or raise BlockingIOError or PermissionError. It ends with this process, whoever has copies."""
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def hand_over(descriptor: int) -> dict[str, Any]:
        """How a child is started that goes on alone, in a session of its own, and inherits an open file, with its lock."""
        return {"start_new_session": True, "pass_fds": (descriptor,)}

    def has_ended(process: subprocess.Popen[bytes]) -> bool:
        """Whether a child has ended; it is not collected, so that its id cannot belong to another process yet."""
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def end_group(pid: int) -> None:
        """SIGKILL to a process group. Raises ProcessLookupError."""
        os.killpg(pid, KILL)


def open_below(folder: Path, name: str) -> int:
    """A descriptor of a file in a folder, to read; neither may be a link. Raises OSError."""
    if sys.platform == "win32":
        if folder.is_symlink() or (folder / name).is_symlink():
            raise FileNotFoundError(name)
        return os.open(folder / name, LOOK)
    else:
        above = os.open(folder, LOOK | os.O_DIRECTORY)
        try:
            return os.open(name, LOOK, dir_fd=above)
        finally:
            os.close(above)


def leads_session(pid: int) -> bool:
    """Whether a process leads a session of its own, so that all of it is ours. Raises ProcessLookupError."""
    return sys.platform != "win32" and os.getsid(pid) == pid


def signal_main_thread(number: signal.Signals) -> None:
    """Let Python's handler of a signal run in the main thread; from any thread."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, number)
    else:
        _thread.interrupt_main(number)


def sync(path: Path) -> None:
    """Wait until the disk has a file, or a folder's list of names. Raises OSError."""
    if WINDOWS and path.is_dir():
        return  # folders cannot be opened there
    descriptor = os.open(path, os.O_RDWR if WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename_to_new(folder: Path, target: Path) -> None:
    """Give a folder a name that is free or that of an empty folder. Raises OSError."""
    if WINDOWS and target.is_dir():
        target.rmdir()
    os.rename(folder, target)


def remove_lock(file: Path, descriptor: int) -> None:
    """Remove the file of a lock that is held, and free it: at the very end, as until then nobody takes what it guards for left."""
    if WINDOWS:
        os.close(descriptor)  # open files cannot be removed there
        with contextlib.suppress(OSError):  # somebody else has just opened it, and will remove it
            file.unlink(missing_ok=True)
        return
    file.unlink(missing_ok=True)
    os.close(descriptor)


def is_private(status: os.stat_result) -> bool:
    """Whether a file is this user's, and nobody else may read or write it. On Windows the folder's rights decide, which are not asked."""
    if not stat.S_ISREG(status.st_mode):
        return False
    return sys.platform == "win32" or (status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077)


def user_mark() -> str:
    """Something that tells this user's folder from others' beside it: on Windows each has temporary files of their own."""
    if sys.platform == "win32":
        return "own"
    else:
        return str(os.getuid())
