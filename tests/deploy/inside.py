"""The first process of a :mod:`tests.deploy.container`: it mounts what the container sees, gives up its rights and becomes the command.

Called as root in namespaces of its own: ``python inside.py SETTINGS.json``. No package of ours is imported.
"""

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

SET_FLAGS, UP = 0x8914, 1  # SIOCSIFFLAGS, IFF_UP
SET_PDEATHSIG = 1  # of prctl
DEVICES = ("null", "zero", "full", "random", "urandom")


def mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)


def mount_all(settings: dict[str, Any], root: Path) -> None:
    """The parts of the container's tree, then all that is not its own to write becomes read-only."""
    mount("--rbind", settings["base"], root)
    tmpfs(root / "dev", 0, "755")
    for name in DEVICES:
        (root / "dev" / name).touch()
        mount("--bind", f"/dev/{name}", root / "dev" / name)
    tmpfs(root / "dev/shm", 0, "1777")
    mount("-t", "proc", "proc", root / "proc")
    for path, owner in settings["tmpfs"]:
        tmpfs(root / path.lstrip("/"), owner, "1777" if path == "/tmp" else "755")
    for source, path in settings["binds"]:
        place = root / path.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        mount("--bind", source, place)
    own = {path for path, owner in settings["tmpfs"] if owner or path == "/tmp"}
    for path in ("/", "/dev", *(path for path, _ in settings["tmpfs"]), *(path for _, path in settings["binds"])):
        if path not in own:
            mount("-o", "remount,bind,ro", root / path.lstrip("/"))


def tmpfs(place: Path, owner: int, mode: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    mount("-t", "tmpfs", "-o", f"mode={mode},uid={owner},gid={owner}", "tmpfs", place)


def main(path: Path) -> None:
    settings = json.loads(path.read_text(encoding="utf-8"))
    root = Path(settings["root"])
    mount_all(settings, root)
    with socket.socket() as one:  # in a network namespace of its own even this machine's own address sleeps
        fcntl.ioctl(one, SET_FLAGS, struct.pack("16sh14x", b"lo", UP))
    os.chroot(root)
    os.chdir(settings["folder"])
    os.setgroups([])
    os.setgid(settings["user"])
    os.setuid(settings["user"])
    ctypes.CDLL(None).prctl(SET_PDEATHSIG, signal.SIGKILL)  # another user's process no longer ends with unshare by itself
    command, variables = settings["command"], settings["environment"]
    program = shutil.which(command[0], path=variables["PATH"])
    assert program is not None, f"there is no {command[0]} in {variables['PATH']}"
    os.execve(program, command, variables)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
