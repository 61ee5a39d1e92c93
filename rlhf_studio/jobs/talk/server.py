"""The requests of the Talk page, worked on in a child process (:mod:`rlhf_studio.child_process.serving`).

A request is ``{"prompt", "as_read", "sides": [{"run", "step", "seed", "settings"}, ...]}``; ``run`` is a run folder, ``step`` null for the
starting policy, ``settings`` those of ``generation``. Without a prompt the policies are only loaded. Events are those of
:func:`rlhf_studio.jobs.talk.answer.answer` with ``side``, ``progress`` while something is loaded, and ``failed`` for one side. The sides
are answered together, token by token in turn.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import transformers

from rlhf_studio.child_process.serving import Handler, IsCancelled, Json, Tell, work
from rlhf_studio.config import GenerationConfig, Permissions, permissions_from_environment
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.types import NonFiniteError
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.jobs.talk.answer import TypedPrompt, answer
from rlhf_studio.jobs.talk.loaded import CannotTalk
from rlhf_studio.jobs.talk.loaded_policies import LoadedPolicies
from rlhf_studio.runs.checkpoints import CheckpointError
from rlhf_studio.runs.errors import StoreError

MESSAGES = (CannotTalk, ConfigError, PromptsError, CheckpointError, StoreError, NonFiniteError)
"""Errors that a person or a run's state causes: the message is enough, without a trace."""


def handler(waits: Callable[[], bool]) -> Handler:
    """Policies stay loaded from one request to the next."""
    transformers.utils.logging.disable_progress_bar()
    return Conversation(permissions_from_environment(os.environ)).ask


class Conversation:
    """Answers requests one after the other; policies stay loaded from one to the next."""

    def __init__(self, permissions: Permissions):
        self._tell: Tell = lambda event: None
        self._policies = LoadedPolicies(
            permissions, lambda text, fraction: self._tell({"event": "progress", "text": text, "fraction": fraction})
        )

    def ask(self, request: Json, tell: Tell, is_cancelled: IsCancelled = lambda: False) -> None:
        """Send the events of one request."""
        self._tell = tell
        running: dict[int, Iterator[Json]] = {}
        for side, policy in enumerate(request.get("sides", [])):
            if not is_cancelled():
                self._guard(side, partial(self._begin, side, policy, request, running))
        while running and not is_cancelled():
            for side in list(running):
                if not self._guard(side, partial(self._next, side, running)):
                    running.pop(side, None)
        for unfinished in running.values():
            unfinished.close()  # type: ignore[attr-defined]

    def _begin(self, side: int, policy: Json, request: Json, running: dict[int, Iterator[Json]]) -> bool:
        talker = self._policies.get(Path(policy["run"]), policy["step"])
        if request.get("prompt") is not None:
            settings = GenerationConfig.model_validate({**policy["settings"], "response_length_min": 0})
            question = TypedPrompt(request["prompt"], request.get("as_read") is True, settings, int(policy["seed"]))
            running[side] = answer(talker, question)
        return True

    def _next(self, side: int, running: dict[int, Iterator[Json]]) -> bool:
        event = next(running[side], None)
        if event is not None:
            self._tell({**event, "side": side})
        return event is not None

    def _guard(self, side: int, step: Callable[[], bool]) -> bool:
        """Do the work of one side. An error there is sent as an event, and does not disturb the other side."""
        done: list[bool] = []
        work(lambda *_: done.append(step()), {}, lambda event: self._tell({**event, "side": side}), lambda: False, MESSAGES)
        return done == [True]
