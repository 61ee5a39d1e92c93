"""The process behind the reward playground: JSON lines with requests in, JSON lines with events out.

A request is ``{"op": "ask", "number", "model", "revision", "label", "append_eos", "prompt", "response", "candidates", "words", "stopped"}``
or ``{"op": "cancel", "number"}``. Events carry ``number``: ``progress`` while something is loaded, ``model`` with what was loaded,
``scored`` with the fields of :func:`.look.look`, ``trying`` and ``words`` with those of :func:`.look.swaps`, ``failed`` with an ``error``,
and ``done`` at the end. Without a response the model is only loaded.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import torch
import transformers

from rlhf_studio.config import NOTHING_ALLOWED, RewardModelReward
from rlhf_studio.config_io import ConfigError
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.compute.lanes import lanes_for_this_cpu
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.kinds.reward_model import RewardModelScorer, load_scorer
from rlhf_studio.engine.rewards.playground.look import Question, facts_of, look, swaps
from rlhf_studio.engine.rewards.registry import BuildContext
from rlhf_studio.inputs.bundled import resolve

Json = dict[str, Any]
Send = Callable[[Json], None]
MOST_HELD = 2  # models


def serve() -> int:
    """Answer until standard input closes, which also ends what is under way: the app is gone then."""
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
    playground = Playground(send)
    while True:
        request = requests.get()
        playground.ask(request, lambda: request.get("number") in cancelled)  # noqa: B023 - used before the next request is taken
        cancelled.discard(request.get("number"))


class Playground:
    """Answers requests one after the other; the last models stay loaded."""

    def __init__(self, send: Send):
        self._send, self._number = send, None
        self._held: dict[tuple[Any, ...], RewardModelScorer] = {}

    def ask(self, request: Json, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Send the events of one request, ``done`` the last."""
        self._number = request.get("number")
        try:
            self._answer(request, is_cancelled)
        except ConfigError as error:
            self._tell({"event": "failed", "error": "; ".join(problem.message for problem in error.problems)})
        except ComponentError as error:
            self._tell({"event": "failed", "error": str(error)})
        except Exception as error:  # noqa: BLE001 - the last line of defence: the page must be told, and the next text be scored
            traceback.print_exc()
            self._tell({"event": "failed", "error": f"{type(error).__name__}: {error}"[:500]})
        self._tell({"event": "done", "cancelled": is_cancelled()})

    def _answer(self, request: Json, is_cancelled: Callable[[], bool]) -> None:
        scorer = self._scorer(request)
        self._tell({"event": "model", **facts_of(scorer)})
        if request.get("response") is None or is_cancelled():
            return
        question = Question(request["prompt"], request["response"], tuple(request["candidates"]), request["stopped"])
        self._tell({"event": "scored", **look(scorer, question)})
        if request["words"]:
            for found in swaps(scorer, question, is_cancelled):
                self._tell({"event": "words" if "words" in found else "trying", **found})

    def _scorer(self, request: Json) -> RewardModelScorer:
        settings = RewardModelReward(
            model=request["model"], revision=request["revision"], label=request["label"], append_eos=request["append_eos"]
        )
        key = (settings.model, settings.revision, settings.label, settings.append_eos, _changed(settings.model))
        held = self._held.pop(key, None)
        if held is None:
            while len(self._held) >= MOST_HELD:
                self._held.pop(next(iter(self._held)))
            held = load_scorer(settings, settings.model, BuildContext("reward", _compute(), self._progress, NOTHING_ALLOWED))
        self._held[key] = held
        return held

    def _progress(self, text: str, fraction: float | None) -> None:
        self._tell({"event": "progress", "text": text, "fraction": fraction})

    def _tell(self, event: Json) -> None:
        self._send({"number": self._number, **event})


def _compute() -> Compute:
    """The GPU that the app allows, else the CPU; in full precision, so that small changes are not rounding."""
    if torch.cuda.is_available():
        return Compute(torch.device("cuda"), torch.float32)
    return Compute(torch.device("cpu"), torch.float32, lanes=lanes_for_this_cpu())


def _changed(model: str) -> int:
    """When the model's files were last changed, nanoseconds: one that was written anew is loaded anew. 0 for a hub model."""
    return max((file.stat().st_mtime_ns for file in Path(resolve(model)).glob("*") if file.is_file()), default=0)


def _read(lines: TextIO, requests: queue.SimpleQueue[Json], cancelled: set[Any]) -> None:
    for line in lines:
        request = json.loads(line)
        if request.get("op") == "cancel":
            cancelled.add(request.get("number"))
        else:
            requests.put(request)
    os._exit(0)
