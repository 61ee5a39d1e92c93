"""How somebody's own program ends while it records a run, with our engine or beside another trainer.

An error that leaves a block of ours is seen there. Of one that ends the program elsewhere, Python keeps only what it prints as an error
(``sys.last_exc``): of SystemExit no hook hears, neither sys.excepthook nor an atexit function, and nobody can ask for the exit code. So
``sys.exit``, and the ``exit`` and ``quit`` of Python's prompt, note what they are given, and raise what they always raise. Whether that
has ended the program is read off the program's outermost frame: it is over, and it stopped before its end. What remains unknown is the code
of a ``raise SystemExit(...)`` that passes none of our blocks.
"""

from __future__ import annotations

import builtins
import dis
import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal

from rlhf_studio.language import S_
from rlhf_studio.visible import text_of, visible

MOST_LETTERS = 500  # of an error
_noted: list[Any] = []  # what sys.exit was given last, as the only entry
_program: list[FrameType] = []  # the outermost frame of the main thread, as the only entry


def watch_exit() -> None:
    """Note from now on with what the program asks for its end. Calling it again does nothing."""
    if _program or is_interactive():
        return
    main = sys._current_frames().get(threading.main_thread().ident or 0)
    if main is None:
        return
    _program.append(_outermost(main))
    for home, name in ((sys, "exit"), (builtins, "exit"), (builtins, "quit")):
        if hasattr(home, name):
            setattr(home, name, _noting(getattr(home, name)))


def what_ended_the_program() -> BaseException | None:
    """The exception that has ended the program, asked for at its end; None where there is none, or nobody knows.

    None too in a notebook, where an exception ends a cell only.
    """
    if is_interactive():
        return None
    error: BaseException | None = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is not None:
        return error
    return SystemExit(*_noted) if _noted and _broke_off() else None


def end_of(error: BaseException) -> tuple[Literal["stopped", "failed"] | None, str]:
    """The state that a run ends in, and its cause, when ``error`` has ended its program; None for ``sys.exit()`` and ``sys.exit(0)``."""
    if isinstance(error, KeyboardInterrupt):
        return "stopped", S_("Stopped from the keyboard.")
    if not isinstance(error, SystemExit):
        return "failed", S_(f"The training ended with {type(error).__name__}: {visible(text_of(error))[:MOST_LETTERS]}")
    code = error.code
    if code is None or code == 0:
        return None, ""
    if isinstance(code, int):
        return "failed", S_(f"The program ended itself with exit code {int(code)}")
    return "failed", S_(f"The program ended itself: {visible(text_of(error))[:MOST_LETTERS]}")


def is_interactive() -> bool:
    """Whether a person types at a prompt or in a notebook, so that no exception ends the program."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(sys, "ps1") or shell is not None


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def leave(*given: Any) -> Any:
        _noted[:] = given[:1] or [None]
        return original(*given)

    return leave


def _outermost(frame: FrameType) -> FrameType:
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def _broke_off() -> bool:
    """Whether the program's outermost frame is over, and did not come to its end: an exception has left it."""
    if not _program or _outermost(sys._getframe()) is _program[0]:
        return False
    code, at = _program[0].f_code.co_code, _program[0].f_lasti
    return at >= 0 and not dis.opname[code[at]].startswith("RETURN")
