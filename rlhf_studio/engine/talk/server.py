"""The process that answers: JSON lines with requests in, JSON lines with events out.

A request is ``{"op": "ask", "number", "prompt", "as_read", "sides": [{"run", "step", "seed", "settings"}, ...]}`` or
``{"op": "cancel", "number"}``; ``run`` is a run folder, ``step`` null for the starting policy, ``settings`` those of ``generation``.
Without a prompt the policies are only loaded. Events are those of :func:`rlhf_studio.engine.talk.answer.answer`, with ``number`` and
``side``; ``progress`` while something is loaded, ``failed`` with an ``error`` for one side, and ``done`` at the end. The sides are
answered together, token by token in turn.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import transformers

from rlhf_studio.config import GenerationConfig, Permissions
from rlhf_studio.config_io import ConfigError
from rlhf_studio.engine.talk.answer import Question, answer
from rlhf_studio.engine.talk.held import Held
from rlhf_studio.engine.talk.loaded import CannotTalk
from rlhf_studio.engine.types import NonFiniteError
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.runs.checkpoints import CheckpointError
from rlhf_studio.runs.errors import StoreError

Json = dict[str, Any]
Send = Callable[[Json], None]
TOLD = (CannotTalk, ConfigError, PromptsError, CheckpointError, StoreError, NonFiniteError)
"""What people did, or what became of a run: the message is enough."""


def serve(permissions: Permissions) -> int:
    """Answer until standard input closes, which also ends an answer that is under way: the app is gone then."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # from here on, what libraries print goes to the error stream and cannot be taken for an answer
    requests: queue.SimpleQueue[Json] = queue.SimpleQueue()
    cancelled: set[Any] = set()
    threading.Thread(target=_read, args=(sys.stdin, requests, cancelled), daemon=True).start()
    os.nice(5)  # a run on this machine comes first

    def send(message: Json) -> None:
        answers.write(json.dumps(message, allow_nan=False) + "\n")
        answers.flush()

    transformers.utils.logging.disable_progress_bar()
    conversation = Conversation(permissions, send)
    while True:
        request = requests.get()
        conversation.ask(request, lambda: request.get("number") in cancelled)  # noqa: B023 - used before the next request is taken
        cancelled.discard(request.get("number"))


class Conversation:
    """Answers requests one after the other; policies stay loaded from one to the next."""

    def __init__(self, permissions: Permissions, send: Send):
        self._send, self._number = send, None
        self._held = Held(permissions, lambda text, fraction: self._tell({"event": "progress", "text": text, "fraction": fraction}))

    def ask(self, request: Json, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Send the events of one request, ``done`` the last."""
        self._number = request.get("number")
        running: dict[int, Iterator[Json]] = {}
        for side, wanted in enumerate(request.get("sides", [])):
            if not is_cancelled():
                self._guard(side, lambda: self._begin(side, wanted, request, running))  # noqa: B023 - called at once
        while running and not is_cancelled():
            for side in list(running):
                if not self._guard(side, lambda: self._next(side, running)):  # noqa: B023
                    running.pop(side, None)
        for unfinished in running.values():
            unfinished.close()  # type: ignore[attr-defined]
        self._tell({"event": "done", "cancelled": is_cancelled()})

    def _begin(self, side: int, wanted: Json, request: Json, running: dict[int, Iterator[Json]]) -> bool:
        talker = self._held.get(Path(wanted["run"]), wanted["step"])
        if request.get("prompt") is not None:
            settings = GenerationConfig.model_validate({**wanted["settings"], "response_length_min": 0})
            question = Question(request["prompt"], request.get("as_read") is True, settings, int(wanted["seed"]))
            running[side] = answer(talker, question)
        return True

    def _next(self, side: int, running: dict[int, Iterator[Json]]) -> bool:
        event = next(running[side], None)
        if event is not None:
            self._tell({**event, "side": side})
        return event is not None

    def _guard(self, side: int, work: Callable[[], bool]) -> bool:
        """Do the work of one side; what goes wrong there is told, and leaves the other side alone."""
        try:
            return work()
        except TOLD as error:
            self._tell({"event": "failed", "side": side, "error": str(error)})
        except Exception as error:  # noqa: BLE001 - the last line of defence: the page must be told, and the next prompt be answered
            traceback.print_exc()
            self._tell({"event": "failed", "side": side, "error": f"{type(error).__name__}: {error}"[:500]})
        return False

    def _tell(self, event: Json) -> None:
        self._send({"number": self._number, **event})


def _read(lines: TextIO, requests: queue.SimpleQueue[Json], cancelled: set[Any]) -> None:
    for line in lines:
        request = json.loads(line)
        if request.get("op") == "cancel":
            cancelled.add(request.get("number"))
        else:
            requests.put(request)
    os._exit(0)
