"""A start that is asked for twice starts once: after a double click, and when a page asks again because no answer came.

The page gives every wish to start something a ``nonce``, a name that occurs once (``Once`` in ``assets/shared/visit.js``). A request
with a nonce that has started something gets the same answer again, and starts nothing. Programs choose theirs, so they also send their
``wish``: what they ask for.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from rlhf_studio.ui.sent import member

REMEMBERED = 200  # answers
LONGEST = 80  # characters of a nonce
Json = dict[str, Any]


def nonce_of(data: Any) -> str:
    """The nonce that a page sent; empty when it sent none, or something else."""
    nonce = member(data, "nonce")
    return nonce if isinstance(nonce, str) and len(nonce) <= LONGEST else ""


class Once:
    """Remembers the last answers to requests that started something. One start is made at a time.

    Args:
        started: whether an answer says that something was started; others are not remembered, so that one can try again.
    """

    def __init__(self, started: Callable[[Json], bool]) -> None:
        self._started = started
        self._answers: OrderedDict[str, tuple[Any, Json]] = OrderedDict()
        self._lock = threading.Lock()

    def answer(self, data: Any, make: Callable[[], Json]) -> Json:
        """What ``make`` gives, or what it gave before to the nonce that was sent in ``data``. Without a nonce it is always made.

        Raises ValueError where ``data`` says its ``wish`` and the nonce has started something with another one.
        """
        nonce = nonce_of(data)
        if not nonce:
            return make()
        with self._lock:
            if nonce in self._answers:
                wish, answer = self._answers[nonce]
                if wish != member(data, "wish"):
                    started = answer.get("run_id") or "".join(answer.get("runs", [])[:1])
                    raise ValueError(f"The request_id {nonce!r} has started the run {started} with other settings. Take a new one.")
                return answer
            answer = make()
            if self._started(answer):
                self._answers[nonce] = member(data, "wish"), answer
                while len(self._answers) > REMEMBERED:
                    self._answers.popitem(last=False)
            return answer
