"""The numbers of lessons, computed in child processes, and a memory of the answers.

Equal questions have equal answers, and a control has only so many values: what one reader has asked, the next one gets from memory. Slow
scenes have a process of their own, so that nobody who moves a slider waits for another reader's measurement.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from typing import Any

from rlhf_studio.child_process.service import Busy, Job, Service
from rlhf_studio.language import _, told

MOST_WAITING = 40
MOST_KEPT = 3_000  # answers
KEPT_BYTES = 64_000_000
Json = dict[str, Any]


def lessons_service(patience: float = 30.0) -> Service:
    """The process that computes; ``patience``: seconds for one answer. The first one waits for torch."""
    alone = [("OMP_NUM_THREADS", "1")]  # the tensors are small: more threads would only wait
    return Service("lessons", environment=alone, idle=600.0, patience=patience, most_waiting=MOST_WAITING)


class NotComputed(Exception):
    """Why there is no answer, in a sentence for people."""


class Computer:
    """A child process of the kind "lessons", and a memory of its answers."""

    def __init__(self, service: Service | None = None) -> None:
        self._service = service or lessons_service()
        self._answers: OrderedDict[str, bytes] = OrderedDict()
        self._jobs: dict[str, Job] = {}
        self._bytes, self._memory = 0, threading.Lock()

    @property
    def has_begun(self) -> bool:
        """Whether the process has started, or starts now."""
        return self._service.pid is not None or self._service.working

    def begin(self) -> None:
        """Start the process now, because a question may come soon and loading takes some seconds."""
        self._service.begin()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._service.close()

    def ask(self, question: Json) -> Any:
        """The answer to a question (see :mod:`rlhf_studio.lessons.server`). Raises :class:`NotComputed`."""
        key = json.dumps(question, sort_keys=True)
        with self._memory:
            if key in self._answers:
                self._answers.move_to_end(key)
                return json.loads(self._answers[key])
            job = self._jobs.get(key)  # another reader may be waiting for the same
            if job is None:
                try:
                    job = self._jobs[key] = self._service.submit(question)
                except Busy as error:
                    raise NotComputed(told(error)) from None
        job.ended.wait()
        with self._memory:
            self._jobs.pop(key, None)
            answer = job.last("answer")
            if answer is None:
                failed = job.last("failed")
                raise NotComputed(_("It was not computed. Try again.") if failed is None else told(failed["error"]))
            if key not in self._answers:
                self._keep(key, json.dumps(answer["answer"]).encode())
        return answer["answer"]

    def _keep(self, key: str, answer: bytes) -> None:
        self._answers[key] = answer
        self._bytes += len(answer)
        while len(self._answers) > MOST_KEPT or self._bytes > KEPT_BYTES:
            _, gone = self._answers.popitem(last=False)
            self._bytes -= len(gone)
