"""Prompts for the form, which asks at every change of any setting: a source that has not changed is read once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable
from functools import lru_cache
from pathlib import Path
from typing import Generic, TypeVar

from rlhf_studio.config import DataConfig
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.read import Prompts, read_prompts
from rlhf_studio.inputs.prompts.sources.opening import is_remote
from rlhf_studio.inputs.prompts.sources.rows import entries_of
from rlhf_studio.inputs.trained import resolve

REMOTE_ROWS = 200
FOLDER_ROWS = 5_000
LOCAL_BYTES = 64_000_000
REMOTE_BYTES = 4_000_000
"""Memory for the prompts of one source: four files are remembered, and twenty answers of the hub."""
REMOTE_SECONDS = 30.0
REMEMBER_SECONDS = 300.0
REMEMBER_PROBLEM_SECONDS = 30.0
TEXT_SETTINGS = (
    "prompts", "subset", "split", "revision", "column", "input_column", "reference_column", "chat_template", "prompt_format", "dialogue",
    "max_prompts", "drop_duplicates", "min_characters", "max_characters",
)  # fmt: skip
"""What :func:`read_prompts` looks at."""


def read_once(data: DataConfig) -> Prompts:
    """As :func:`read_prompts`; of a folder, a hub dataset or very long prompts the first rows only. Raises :class:`PromptsError`."""
    about = DataConfig(**{name: getattr(data, name) for name in TEXT_SETTINGS})
    if is_remote(data.prompts):
        return _remote.get(about)
    return _local(about, state_of(resolve(data.prompts)))


def state_of(path: str) -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of a file, or of the files in a folder: changes when the prompts do. Empty when there is nothing."""
    try:
        paths = [str(entry) for entry in entries_of(Path(path))[:1000]] if os.path.isdir(path) else [path]
        return tuple((name, os.stat(name).st_mtime_ns, os.stat(name).st_size) for name in paths)
    except (OSError, ValueError):  # also a folder with too many files, which the reader refuses
        return ()


@lru_cache(maxsize=4)
def _local(data: DataConfig, state: tuple[tuple[str, int, int], ...]) -> Prompts:
    limit = FOLDER_ROWS if os.path.isdir(data.prompts) else None
    return read_prompts(data, limit=limit, keep_bytes=LOCAL_BYTES, seconds=REMOTE_SECONDS)


Settings = TypeVar("Settings", bound=Hashable)
Answer = TypeVar("Answer")


class RemoteMemory(Generic[Settings, Answer]):
    """Answers of the hub, for some minutes; problems for less, since a person will try to mend them.

    Two questions at once wait for one answer. ``read`` and ``now`` can be replaced in tests.
    """

    def __init__(self, read: Callable[[Settings], Answer], now: Callable[[], float] = time.monotonic):
        self._read, self._now = read, now
        self._lock = threading.Lock()
        self._answers: dict[Settings, tuple[float, Answer | PromptsError]] = {}

    def get(self, data: Settings) -> Answer:
        """What these settings read, asked for or remembered. Raises :class:`PromptsError`."""
        with self._lock:
            known = self._answers.get(data)
            if known is None or self._now() > known[0]:
                known = self._ask(data)
                self._answers = {**dict(list(self._answers.items())[-19:]), data: known}
        answer = known[1]
        if isinstance(answer, PromptsError):
            raise PromptsError(answer.field, answer.message)
        return answer

    def _ask(self, data: Settings) -> tuple[float, Answer | PromptsError]:
        try:
            answer: Answer | PromptsError = self._read(data)
        except PromptsError as error:
            return self._now() + REMEMBER_PROBLEM_SECONDS, error
        return self._now() + REMEMBER_SECONDS, answer


_remote: RemoteMemory[DataConfig, Prompts] = RemoteMemory(
    lambda data: read_prompts(data, limit=REMOTE_ROWS, keep_bytes=REMOTE_BYTES, seconds=REMOTE_SECONDS)
)
