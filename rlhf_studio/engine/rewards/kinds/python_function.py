"""A person's own reward function, kept in a child process: it cannot make the run hang, change its memory, or live longer than it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from rlhf_studio.child_process.environment import foreign_environment
from rlhf_studio.child_process.line_process import LineEnded, LineInvalid, LineProcess, LineTimeout
from rlhf_studio.config import Component, Permissions, PythonReward
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.rewards.episodes import Answer, Episodes
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.kinds.steps import early_scores
from rlhf_studio.engine.rewards.outside import python_child
from rlhf_studio.engine.rewards.outside.replies import SPARE_BYTES, checked_steps, most_bytes
from rlhf_studio.engine.rewards.registry import BuildContext, refuse_problems, scorer

CHILD = Path(python_child.__file__)
START_SECONDS = 120.0  # reading the file may import large libraries


class PythonFunction:
    """Calls the function once per batch. After a time-out or a crash the next batch starts a fresh process."""

    def __init__(self, settings: PythonReward, permissions: Permissions, field: str, begun: LineProcess | None = None):
        """``begun``: its process, where :func:`begin_processes` has started it.

        Raises :class:`ConfigError` when the file is not allowed or gives no such function.
        """
        refuse_problems(settings, field, permissions)
        self._settings, self._command = settings, _command(settings, permissions)
        self._process = begun
        self._requests = 0
        try:
            self._wait_until_ready() if begun else self._running()
        except ComponentError as error:
            raise ConfigError([Problem(f"{field}.file", f"{settings.file} cannot be used: {error}")]) from error

    def __call__(self, episodes: Episodes) -> Answer:
        """The function's scores. Raises :class:`ComponentError`."""
        extra: dict[str, Any] = {"stopped": episodes.stopped, "lengths": episodes.lengths}
        if episodes.references is not None:
            extra["references"] = episodes.references
        if episodes.chats is not None:
            extra["messages"] = episodes.chats
        self._running()
        extra |= {"tokens": episodes.pieces} if episodes.pieces is not None and "tokens" in self._named else {}
        extra |= {"logprobs": episodes.logprobs} if episodes.logprobs is not None and "logprobs" in self._named else {}
        request = {"prompts": episodes.prompts, "responses": episodes.responses, "extra": extra}
        count = len(episodes.responses)
        steps = checked_steps(self._ask(request, count + sum(episodes.lengths)), count)
        totals = [sum(score) if isinstance(score, list) else score for score in steps]
        return Answer(torch.tensor(totals, dtype=torch.float32), early=early_scores(steps, episodes))

    def _running(self) -> LineProcess:
        """The process; a fresh one where there is none."""
        if self._process is None:
            try:
                self._process = _start(self._command)
            except OSError as error:
                raise ComponentError(f"its process could not be started: {error}") from error
            self._wait_until_ready()
        return self._process

    def _wait_until_ready(self) -> None:
        first = self._exchange(lambda process: process.receive(START_SECONDS, SPARE_BYTES), START_SECONDS)
        if "error" in first:
            self._end()
            raise ComponentError(str(first["error"]))
        self._named = first.get("names", [])

    def _ask(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        self._running()
        self._requests += 1
        limit = self._settings.timeout
        answer = self._exchange(lambda process: process.ask({**request, "number": self._requests}, limit, most_bytes(count)), limit)
        if answer.get("number") != self._requests:  # one line too many was written: every later batch would get the scores of another one
            self._end()
            raise ComponentError("it answered something else than what it was asked")
        return answer

    def _exchange(self, talk: Callable[[LineProcess], dict[str, Any]], limit: float) -> dict[str, Any]:
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


def begin_processes(components: Sequence[Component], permissions: Permissions) -> dict[int, LineProcess]:
    """Start the processes of the functions among ``components``, by number: they read their files while this process loads models.

    What cannot be started is left to :class:`PythonFunction`, which says why.
    """
    begun: dict[int, LineProcess] = {}
    for number, component in enumerate(components):
        if isinstance(component, PythonReward) and permissions.allowed_file(component.file):
            with contextlib.suppress(OSError):
                begun[number] = _start(_command(component, permissions))
    return begun


def _command(settings: PythonReward, permissions: Permissions) -> list[str]:
    return [sys.executable, "-P", str(CHILD), str(permissions.allowed_file(settings.file)), settings.function]


def _start(command: list[str]) -> LineProcess:
    """Raises OSError."""
    return LineProcess(command, environment=foreign_environment(os.environ) | {"PYTHONUNBUFFERED": "1"})


@scorer(PythonReward)
def build(settings: PythonReward, context: BuildContext) -> PythonFunction:
    """Waits until the function's process has read the file; starts it where that has not been done."""
    context.report(f"Starting the reward function {settings.function} of {settings.file}", None)
    return PythonFunction(settings, context.permissions, context.field, context.begun)
