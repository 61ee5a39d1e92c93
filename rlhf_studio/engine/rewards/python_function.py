"""A person's own reward function, kept in a child process: it cannot hang, corrupt or outlive the run."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any

import torch

from rlhf_studio.child_process.environment import foreign_environment
from rlhf_studio.child_process.line_process import LineEnded, LineInvalid, LineProcess, LineTimeout
from rlhf_studio.config import HttpReward, Permissions, PythonReward
from rlhf_studio.config_io import ConfigError, Problem
from rlhf_studio.engine.rewards.episodes import Answer, Episodes
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.inputs.reward_checks import check_component

CHILD = Path(__file__).with_name("python_child.py")
START_SECONDS = 120.0  # reading the file may import large libraries
BYTES_PER_SCORE, SPARE_BYTES = 64, 20_000


def refuse_at_the_door(settings: PythonReward | HttpReward, permissions: Permissions, field: str) -> None:
    """The check before a start, made again where the component is built. Raises :class:`ConfigError`."""
    problems: list[Problem] = []
    check_component(settings, field, None, problems, permissions)
    if problems:
        raise ConfigError(problems)


class PythonFunction:
    """Calls the function once per batch. After a time-out or a crash the next batch starts a fresh process."""

    def __init__(self, settings: PythonReward, permissions: Permissions, field: str):
        """Raises :class:`ConfigError` when the file is not allowed or gives no such function."""
        refuse_at_the_door(settings, permissions, field)
        file = permissions.allowed_file(settings.file)
        self._settings, self._command = settings, [sys.executable, "-P", str(CHILD), str(file), settings.function]
        self._process: LineProcess | None = None
        self._asked = 0
        try:
            self._running()
        except ComponentError as error:
            raise ConfigError([Problem(f"{field}.file", f"{settings.file} cannot be used: {error}")]) from error

    def __call__(self, episodes: Episodes) -> Answer:
        """The function's scores. Raises :class:`ComponentError`."""
        extra: dict[str, Any] = {"stopped": episodes.stopped, "lengths": episodes.lengths}
        if episodes.references is not None:
            extra["references"] = episodes.references
        if episodes.chats is not None:
            extra["messages"] = episodes.chats
        request = {"prompts": episodes.prompts, "responses": episodes.responses, "extra": extra}
        answer = self._ask(request, len(episodes.responses))
        return Answer(torch.tensor(checked_scores(answer, len(episodes.responses)), dtype=torch.float32))

    def _running(self) -> LineProcess:
        if self._process is None:
            try:
                self._process = LineProcess(self._command, environment=foreign_environment(os.environ) | {"PYTHONUNBUFFERED": "1"})
            except OSError as error:
                raise ComponentError(f"its process could not be started: {error}") from error
            greeting = self._exchange(lambda process: process.receive(START_SECONDS, SPARE_BYTES), START_SECONDS)
            if "error" in greeting:
                self._end()
                raise ComponentError(str(greeting["error"]))
        return self._process

    def _ask(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        self._running()
        self._asked += 1
        limit, most = self._settings.timeout, SPARE_BYTES + BYTES_PER_SCORE * count
        answer = self._exchange(lambda process: process.ask({**request, "number": self._asked}, limit, most), limit)
        if answer.get("number") != self._asked:  # a line too many: from here on every batch would get the scores of another
            self._end()
            raise ComponentError("it answered something else than what it was asked")
        return answer

    def _exchange(self, talk: Any, limit: float) -> dict[str, Any]:
        assert self._process is not None
        try:
            return talk(self._process)
        except LineTimeout:
            self._end()
            raise ComponentError(f"it did not answer within {limit:g} s, so its process was ended") from None
        except LineEnded as error:
            self._end()
            raise ComponentError(f"its process is gone: {error}") from None
        except LineInvalid as error:
            self._end()
            raise ComponentError(str(error)) from None

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None


def checked_scores(answer: dict[str, Any], count: int) -> list[float]:
    """``answer["scores"]`` as ``count`` finite floats; what an outside program says is not trusted. Raises :class:`ComponentError`."""
    if "error" in answer:
        row = answer.get("row")
        raise ComponentError(str(answer["error"])[:1000], row if isinstance(row, int) and 0 <= row < count else None)
    scores = answer.get("scores")
    if not isinstance(scores, list):
        raise ComponentError('its answer holds no list "scores"')
    if len(scores) != count:
        raise ComponentError(f"it gave {len(scores)} scores for {count} responses")
    for row, score in enumerate(scores):
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise ComponentError(f"it gave {str(score)[:100]!r}, which is not a number", row)
        if abs(score) > sys.float_info.max or not math.isfinite(score):
            raise ComponentError(f"it gave {str(score)[:100]}, which is not a finite number", row)
    return [float(score) for score in scores]
