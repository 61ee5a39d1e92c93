"""A container as far as Linux itself has them: namespaces, a tree that cannot be written, a user without rights, no network. No Docker.

It needs root, or it is skipped. What it leaves out of Docker: layers, limits of memory and CPU, seccomp, published ports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

USER = 1000
INSIDE = Path(__file__).with_name("inside.py")
NAMESPACES = ("--mount", "--pid", "--net", "--fork", "--kill-child=KILL")


def why_not() -> str:
    """Why no container can be made here; empty when it can."""
    if os.geteuid() != 0:
        return "only root can make namespaces with other users in them"
    try:
        tried = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "there is no unshare"
    return tried.stderr.strip() if tried.returncode else ""


@dataclass
class Container:
    """What is to run, and where.

    Attributes:
        folder: for its own files; must exist.
        base: the tree that becomes its root.
        command: what runs, as words.
        environment: all its variables.
        work: the folder it starts in.
        user: whose rights it has, as a number.
        tmpfs: folders in memory with their owners' numbers. All that is not another owner's, and not /tmp, is read-only.
        binds: folders of this machine, and where they are seen.
    """

    folder: Path
    base: Path
    command: Sequence[str]
    environment: Mapping[str, str]
    work: str = "/"
    user: int = USER
    tmpfs: Sequence[tuple[str, int]] = ()
    binds: Sequence[tuple[Path, str]] = ()
    process: subprocess.Popen[str] = field(init=False, repr=False)

    def start(self, output: int | None = None) -> Container:
        """Start it; what it prints goes to the descriptor ``output``."""
        (self.folder / "root").mkdir(exist_ok=True)
        settings = {
            "root": str(self.folder / "root"),
            "base": str(self.base),
            "command": list(self.command),
            "environment": dict(self.environment),
            "folder": self.work,
            "user": self.user,
            "tmpfs": [list(one) for one in self.tmpfs],
            "binds": [[str(source), path] for source, path in self.binds],
        }
        path = self.folder / "settings.json"
        path.write_text(json.dumps(settings), encoding="utf-8")
        command = ["unshare", *NAMESPACES, sys.executable, str(INSIDE), str(path)]
        self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT if output is not None else None, text=True)
        return self

    def first(self) -> int:
        """The number that this machine knows its first process by. Raises ValueError as long as there is none."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def run(self, command: Sequence[str], user: int | None = None, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command in it, as ``docker exec`` does: by default as its own user."""
        who = str(self.user if user is None else user)
        entered = ["nsenter", "-t", str(self.first()), "-m", "-p", "-n", "-r", f"-w/proc/{self.first()}/cwd", "-S", who, "-G", who]
        return subprocess.run(
            [*entered, *command], env=dict(self.environment), capture_output=True, text=True, check=False, timeout=seconds
        )

    def close(self) -> None:
        """End it with all its processes, and what was mounted with them."""
        self.process.kill()
        self.process.wait()
