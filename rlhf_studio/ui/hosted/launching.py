"""The variables that Gradio reads while it launches, as this app needs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_DIRECTLY = ("NO_PROXY", "no_proxy")
_HIDDEN = "SYSTEM"
_LOCAL = ("localhost", "127.0.0.1", "::1")


@contextmanager
def undisturbed(host: str) -> Iterator[None]:
    """A block in which Gradio launches the app that listens on ``host``.

    Gradio asks the app whether it answers: that question must not go through the proxy of ``HTTP_PROXY``, which leads to other machines.
    And on a Space (``SYSTEM=spaces``) it would start a thread that watches our source for edits, which needs a package that is not ours.

    The variables are put back afterwards: engines and helpers get them as they were. Nothing else of the app may run in the block.
    """
    before = {name: os.environ.get(name) for name in (*_DIRECTLY, _HIDDEN)}
    told = next((value for name in _DIRECTLY if (value := before[name])), "")
    os.environ.update(dict.fromkeys(_DIRECTLY, ",".join(part for part in (told, *_LOCAL, host.strip("[]")) if part)))
    os.environ.pop(_HIDDEN, None)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
