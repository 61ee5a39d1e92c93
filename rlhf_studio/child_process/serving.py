"""The side of the child process: it takes requests, one JSON object in a line, and answers with events in the same form.

A request has a ``number`` that its events repeat, and an ``op``. The last event is ``done``, with ``cancelled``; before it may come
``progress`` (``text``, ``fraction``), ``failed`` (``error``), and what each kind has of its own. ``{"op": "cancel", "number"}`` asks to
stop, and ``{"op": "load"}`` only to be ready.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any, TextIO

from rlhf_studio.child_process.loading import libraries_stay

Json = dict[str, Any]
Tell = Callable[[Json], None]
"""Sends one event."""
IsCancelled = Callable[[], bool]
Handler = Callable[[Json, Tell, IsCancelled], None]
"""Works on one request; what it raises is told as ``failed``."""


def serve(module: str) -> int:
    """Let a module work on requests until standard input closes, which also ends what is under way: the app is gone then.

    The module has ``handler(waits)``, which gives a :data:`Handler` and may load first what it needs (``waits()`` tells whether a request
    waits already), and ``MESSAGES``, the errors whose message is enough for people.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # from here on, what libraries print goes to the error stream and cannot be taken for an answer
    requests: queue.SimpleQueue[Json] = queue.SimpleQueue()
    cancelled: set[Any] = set()
    threading.Thread(target=_read, args=(sys.stdin, requests, cancelled), daemon=True).start()
    os.nice(5)  # a run on this machine comes first
    with libraries_stay():
        served = import_module(module)
    handle, messages = served.handler(lambda: not requests.empty()), served.MESSAGES
    while True:
        request = requests.get()
        number = request.get("number")

        def tell(event: Json, number: Any = number) -> None:
            answers.write(json.dumps({"number": number, **event}, allow_nan=False) + "\n")
            answers.flush()

        if request.get("op") != "load":
            work(handle, request, tell, lambda number=number: number in cancelled, messages)  # type: ignore[misc]
        tell({"event": "done", "cancelled": number in cancelled})
        cancelled.discard(number)


def work(handle: Handler, request: Json, tell: Tell, is_cancelled: IsCancelled, messages: tuple[type[Exception], ...]) -> None:
    """Let the handler work on a request, and send an event when it fails."""
    try:
        handle(request, tell, is_cancelled)
    except messages as error:
        tell({"event": "failed", "error": str(error)})
    except Exception as error:  # noqa: BLE001 - the last line of defence: the page must be told, and the next request be worked on
        traceback.print_exc()
        tell({"event": "failed", "error": f"{type(error).__name__}: {error}"[:500]})


def _read(lines: TextIO, requests: queue.SimpleQueue[Json], cancelled: set[Any]) -> None:
    for line in lines:
        request = json.loads(line)
        if request.get("op") == "cancel":
            cancelled.add(request.get("number"))
        else:
            requests.put(request)
    os._exit(0)
