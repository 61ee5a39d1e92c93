"""Which app holds the class of a workspace: one at a time. The kernel answers, so that an app that was killed holds nothing."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rlhf_studio.runs.errors import StoreError, store_error

LOCK = "class.lock"
HELD = (
    "Another app that was started with --classroom holds the class of {root}. Its students and answers are in it: go on there, or end that "
    "app first, or start this one with another --workspace."
)


class Holding:
    """One app's claim on the class below ``root``, an ``flock`` on a file that nothing else opens; it ends with the process."""

    def __init__(self, root: Path):
        self.path = Path(root) / LOCK
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this app has it."""
        return self._descriptor is not None

    def take(self) -> None:
        """Hold the class from now on. Raises StoreError: another app holds it, or the disk cannot lock files."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise store_error(error, self.path) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StoreError(HELD.format(root=self.path.parent), "alive") from None
        except OSError as error:
            os.close(descriptor)
            raise StoreError(f"The disk of {self.path.parent} cannot lock files ({error}). Put the workspace on a local disk.") from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Give it back; harmless when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
