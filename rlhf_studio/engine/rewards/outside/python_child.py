"""The process in which a person's own reward function runs: one JSON line with texts in, one with scores out.

Started by path, ``python -P python_child.py FILE FUNCTION``, with nothing of this package in it. What the function prints goes
to the error stream, so that it cannot be taken for an answer. When the other side is gone, this process ends at once.
``call`` and what it uses are also copied into the reward file that is handed to other engines, which call the function in the same way.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import json
import math
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

MOST_REPR = 200


def S_(sentence: str) -> str:
    """Marks a sentence for the catalogue, as :func:`rlhf_studio.language.S_` does where the package is at hand."""
    return sentence


class Unusable(Exception):
    """The function's answer is not a list of scores; ``row`` is the episode to blame, if one is."""

    def __init__(self, message: str, row: int | None = None):
        self.row = row
        super().__init__(message)


def load(file: str, name: str) -> Callable[..., Any]:
    """The function of that name in that file. Raises whatever the file raises, and Unusable when there is no such function."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))  # as if the file had been run: modules beside it are found
    spec = importlib.util.spec_from_file_location("custom_rewards", file)
    if spec is None or spec.loader is None:
        raise Unusable("it is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["custom_rewards"] = module
    spec.loader.exec_module(module)
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        raise Unusable(f"it has no function called {name}")
    return function


def call(function: Callable[..., Any], request: dict[str, Any]) -> list[float | list[float]]:
    """The scores of one batch. Further facts are passed as far as the function takes them."""
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    named = names_of_extra(function)
    extra = {name: value for name, value in request["extra"].items() if takes_all or name in named}
    return numbers(function(request["prompts"], request["responses"], **extra), len(request["responses"]))


def names_of_extra(function: Callable[..., Any]) -> list[str]:
    """The names of the function's parameters behind prompts and responses."""
    return [parameter.name for parameter in list(inspect.signature(function).parameters.values())[2:]]


def numbers(result: Any, count: int) -> list[float | list[float]]:
    """A list, tuple, array or tensor of ``count`` scores. Raises Unusable that says what is wrong."""
    values = result.tolist() if hasattr(result, "tolist") else result
    if not isinstance(values, list | tuple):
        raise Unusable(f"it gave {short_repr(result)} and not a list of numbers")
    if len(values) != count:
        raise Unusable(f"it gave {len(values)} scores for {count} responses")
    return [score_of(value, row) for row, value in enumerate(values)]


def score_of(value: Any, row: int) -> float | list[float]:
    """A response's score: one finite number, or several, one for each of its steps. Raises Unusable."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    return [number(each, row) for each in plain] if isinstance(plain, list | tuple) and plain else number(plain, row)


def number(value: Any, row: int) -> float:
    """One finite float. Raises Unusable."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unusable(f"it gave {short_repr(value)}, which is not a number", row)
    try:
        score = float(value)
    except OverflowError:
        raise Unusable("it gave a number that is too large", row) from None
    if not math.isfinite(score):
        raise Unusable(f"it gave {score}", row)
    return score


def short_repr(value: Any) -> str:
    """A value for a message, short."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a person's own class may raise anything here
        text = f"a {type(value).__name__}"
    return text if len(text) <= MOST_REPR else text[:MOST_REPR] + "..."


def attempt(action: Callable[[], dict[str, Any]], file: str) -> dict[str, Any]:
    """What ``action`` gives, or the error as data; the full trace goes to the error stream."""
    try:
        return action()
    except Unusable as error:
        return {"error": str(error), "row": error.row}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a person's own code may raise anything; it must be told, not end the process
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if os.path.realpath(frame.filename) == file]
        traceback.print_exception(error.with_traceback(own_part(error.__traceback__, file)))
        where = f" (line {lines[-1]})" if lines else ""
        return {"error": S_(f"it raised {type(error).__name__}: {str(error)[:500]}{where}"), "row": None}


def own_part(trace: TracebackType | None, file: str) -> TracebackType | None:
    """The trace from its first line in ``file`` on: the lines before it are this program's own. The whole when no line is in ``file``."""
    part = trace
    while part is not None and os.path.realpath(part.tb_frame.f_code.co_filename) != file:
        part = part.tb_next
    return part or trace


def read(requests: queue.SimpleQueue[str]) -> None:
    """Pass lines on. When there are no more, the engine is gone: end this process, also while the function is running."""
    for line in sys.stdin:
        requests.put(line)
    if hasattr(os, "getpgrp") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # and whatever the function started
    os._exit(0)


def main(file: str, name: str) -> None:
    """Answer until the other side closes."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=read, args=(requests,), daemon=True).start()
    loaded: list[Callable[..., Any]] = []

    def start() -> dict[str, Any]:
        loaded.append(load(file, name))
        return {"ready": True, "names": names_of_extra(loaded[0])}

    def score(request: dict[str, Any]) -> dict[str, Any]:
        return {"scores": call(loaded[0], request)}

    def answer(answered: dict[str, Any]) -> None:
        answers.write(json.dumps(answered) + "\n")
        answers.flush()

    answer(attempt(start, file))
    while loaded:
        request = json.loads(requests.get())
        answer(attempt(functools.partial(score, request), file) | {"number": request["number"]})


if __name__ == "__main__":
    main(os.path.realpath(sys.argv[1]), sys.argv[2])
