"""The end of the app: at Ctrl-C and at SIGTERM. On a machine that goes with the app, runs end first, with a checkpoint."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from rlhf_studio.language import _
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.hosted.ending import end_runs
from rlhf_studio.runs.hosted.keeper import Keeper
from rlhf_studio.runs.hosted.switch import switch
from rlhf_studio.runs.queue import Dispatcher
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.visiting.modes import on_a_space
from rlhf_studio.visible import say

VARIABLE = "RLHF_STUDIO_STOP_RUNS"
STOP_SECONDS, COPY_SECONDS = 20.0, 8.0  # hosts wait for half a minute before they end everything


def stops_runs(environment: Mapping[str, str]) -> bool:
    """Whether runs end with the app where no flag says so. Raises ValueError for a value that says neither yes nor no."""
    choice = switch(environment, VARIABLE, on=_("runs end with the app"), off=_("they go on"))
    return on_a_space(environment) if choice is None else choice


@contextmanager
def told_to_end() -> Iterator[None]:
    """A block in which SIGTERM raises KeyboardInterrupt, as Ctrl-C does; a second one changes nothing."""

    def raise_once(number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, raise_once)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is raise_once:
            signal.signal(signal.SIGTERM, before)


class Ended(Protocol):
    """What the end of the app needs of it."""

    workspace: Workspace
    dispatcher: Dispatcher | None
    keeper: Keeper | None


def say_goodbye(server: Ended, *, stop_runs: bool) -> None:
    """Say what happens to the runs when the app ends, and do it."""
    if not stop_runs:
        _say(_("\nThe app has stopped. Runs that were working go on; start the app again to see them."))
        return
    _say(_("\nThe app was told to end. Runs that are at work save a checkpoint and stop."))
    if server.dispatcher is not None:
        server.dispatcher.stop()
    try:
        ended, left = end_runs(server.workspace, STOP_SECONDS, "Space" if on_a_space(os.environ) else "app")
    except StoreError as error:
        _say(_("The runs could not be asked to stop: {error}").format(error=error))
        return
    for run in ended:
        _say(_("The run {run} has stopped. Resume lets it go on.").format(run=run))
    for run in left:
        _say(
            _(
                "The run {run} was still at work after {stop_seconds:g} seconds. If it is killed, Resume goes on from its last checkpoint."
            ).format(run=run, stop_seconds=STOP_SECONDS)
        )
    if server.keeper is not None:
        done = server.keeper.finish(COPY_SECONDS)
        _say(_("All ended runs of the owner are in the bucket.") if done else _("Not all ended runs could be copied into the bucket."))


def _say(line: str) -> None:
    say(line)
