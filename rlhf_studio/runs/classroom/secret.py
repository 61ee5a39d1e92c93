"""What an app keeps from all others for the app after it: the token of the teacher's link, and what signs visitors' cookies.

Who has it is an operator, or anybody, so it is not in a database, which others on the machine may read, but in a file for its owner
alone. What somebody else has put there is not believed: another owner's file, one that others may read or write, or a copy, such as from
an archive, which the number of the file in its own text tells.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from rlhf_studio.runs.errors import store_error
from rlhf_studio.system import LOOK, OURS, is_private

TEACHER = "class-teacher.secret"
VISITORS = "visitors.secret"
_LONGEST = 400


def lasting_secret(root: Path, file: str) -> str:
    """The secret in ``file`` below ``root``. A new one is made and stored when there is none that can be trusted. Raises StoreError."""
    known = kept_secret(root, file)
    if not known:
        known = secrets.token_urlsafe(32)
        keep_secret(root, file, known)
    return known


def keep_secret(root: Path, file: str, token: str) -> None:
    """Store the token below ``root``, in place of an earlier one. Raises StoreError."""
    path = Path(root) / file
    fresh = path.with_name(f"{file}-{secrets.token_hex(4)}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OURS, 0o600)
        try:
            os.write(descriptor, f"{token} {os.fstat(descriptor).st_ino}\n".encode("ascii"))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise store_error(error, path) from error


def kept_secret(root: Path, file: str) -> str:
    """The token that an app of this user stored below ``root``; empty when there is none that can be trusted."""
    try:
        descriptor = os.open(Path(root) / file, LOOK)
    except OSError:
        return ""
    try:
        status = os.fstat(descriptor)
        trusted = is_private(status)
        token, _, number = os.read(descriptor, _LONGEST).decode("ascii", "replace").strip().partition(" ")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return token if trusted and number == str(status.st_ino) else ""


def forget_secret(root: Path, file: str) -> None:
    """Remove the stored token, so that later apps do not have it. Raises StoreError."""
    path = Path(root) / file
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise store_error(error, path) from error
