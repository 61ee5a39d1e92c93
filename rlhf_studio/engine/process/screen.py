"""What an engine prints: all of it into the run's ``engine.log``, and what is meant for people on the terminal as well.

What libraries say, warnings and the output of reward functions stay in the log. An engine that the app started has no terminal:
its output is the log already.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from rlhf_studio.language import language, speaking, told
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import store_error
from rlhf_studio.system import OURS
from rlhf_studio.visible import say


@dataclass
class Screen:
    """The terminal (or file, or pipe) that a person started the engine from, and the language that is spoken there."""

    out: TextIO
    err: TextIO
    gone: bool = False
    language: str = field(default_factory=language)

    def show(self, text: str) -> None:
        """One line. When the terminal or pipe is gone, the line is only in the log, and the run goes on."""
        with self.ignoring_a_lost_terminal():
            say(self.told(text), self.out)

    def told(self, text: str) -> str:
        """What the engine says, in the language of this terminal."""
        with speaking(self.language):
            return told(text)

    @contextlib.contextmanager
    def ignoring_a_lost_terminal(self) -> Iterator[None]:
        """A block that writes to the terminal; what cannot be written is in the log."""
        try:
            yield
        except OSError:
            self.gone = True


@contextlib.contextmanager
def output_in_log(run_dir: Path) -> Iterator[Screen | None]:
    """Send what this process and its children print to ``engine.log``. Gives the terminal, or None when output already went to that log.

    An exception that leaves the block is written to the log too. Raises StoreError when there can be no log.
    """
    try:
        log = os.open(Path(run_dir) / paths.LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | OURS, 0o644)
    except OSError as error:
        raise store_error(error, Path(run_dir) / paths.LOG) from error
    if os.path.sameopenfile(1, log):
        os.close(log)
        yield None
        return
    before = sys.stdout, sys.stderr
    for stream in before:
        stream.flush()
    copies = os.dup(1), os.dup(2)
    os.dup2(log, 1)
    os.dup2(log, 2)
    in_log = os.fdopen(log, "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    sys.stdout = sys.stderr = in_log
    try:
        yield Screen(_terminal(before[0], 1, copies[0]), _terminal(before[1], 2, copies[1]))
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout, sys.stderr = before
        in_log.close()
        for number, copy in enumerate(copies, 1):
            os.dup2(copy, number)
            os.close(copy)


def _terminal(stream: TextIO, number: int, copy: int) -> TextIO:
    """The stream as it was before its file descriptor was redirected to the log."""
    try:
        is_descriptor = stream.fileno() == number
    except (OSError, ValueError):  # a stream in memory has no descriptor
        return stream
    if not is_descriptor:
        return stream
    return open(copy, "w", buffering=1, encoding=stream.encoding, errors="replace", closefd=False)
