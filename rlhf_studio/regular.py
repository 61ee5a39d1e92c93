"""Reading files of folders that others may have filled: regular files alone, and no more of them than a page or a process can hold.

A named pipe in the place of a file would be waited for without end, and a device may have no end or do anything when it is read.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from rlhf_studio.system import LOOK, NOFOLLOW

MOST_BYTES = 64 << 20  # of what is read as a whole


class UnfitFile(OSError):
    """What lies there is no file that is read: a pipe, a device, a socket, a folder, or a file without measure."""


def open_regular(path: Path | str, *, follow: bool = True) -> BufferedReader:
    """The file, open for reading. ``follow``: it may be a link.

    Raises OSError, of the kind :class:`UnfitFile` for a pipe, a device, a socket or a folder.
    """
    # opened so, a pipe is not waited for and a terminal does not become ours, before it is looked at
    descriptor = os.open(path, LOOK & ~NOFOLLOW if follow else LOOK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnfitFile(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path | str, most: int = MOST_BYTES, *, follow: bool = True) -> bytes:
    """All of a file with at most ``most`` bytes. Raises OSError as :func:`open_regular`, and :class:`UnfitFile` for a larger one."""
    with open_regular(path, follow=follow) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise UnfitFile(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return data
