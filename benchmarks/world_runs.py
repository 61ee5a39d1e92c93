"""What benchmarks of many small runs share: each run is a process of its own, with one thread, and leaves one file when it is whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


class Progress:
    """Says what is done and how long the rest will take, at the pace so far."""

    def __init__(self, total: int, done: int):
        self._total, self._before, self._done = total, done, done
        self._started, self._lock = time.monotonic(), threading.Lock()

    def one_more(self, name: str, seconds: float) -> None:
        """After each run."""
        with self._lock:
            self._done += 1
            pace = (time.monotonic() - self._started) / (self._done - self._before)
            left = pace * (self._total - self._done) / 60
            print(f"{self._done}/{self._total} {name}: {seconds:.0f} s; {left // 60:.0f} h {left % 60:.0f} min left", flush=True)


def start(module: str, name: str, folder: Path) -> int:
    """The exit code of a run's process: ``python -m module --folder folder --one name``."""
    log = folder / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", module, "--folder", str(folder), "--one", name]
    with log.open("w", encoding="utf-8") as words:
        code = subprocess.run(command, stdout=words, stderr=words, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False).returncode
    if code:
        print(f"{name} failed; its words are in {log}", flush=True)
    return code


def write_whole(path: Path, data: Any) -> None:
    """A file of JSON that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.part")
    unfinished.write_text(json.dumps(data), encoding="utf-8")
    os.replace(unfinished, path)
