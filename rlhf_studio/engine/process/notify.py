"""Telling somebody when a run ends, and the first time that it raises each kind of alarm: JSON to an address, and a note on the desktop.

A thread of its own sends it: training never waits, but for the last message at the end of the process. What cannot be sent is left out, and
said in one event. Addresses may be secrets (those of chat programs are): none gets into a message or a log.
"""

from __future__ import annotations

import contextlib
import html
import platform
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx

from rlhf_studio.config import DESKTOP, Permissions, StageConfig
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.outside.http_client import JsonClient
from rlhf_studio.language import S_, _, language, speaking, told
from rlhf_studio.runs.records import EventRecord, is_alarm

SECONDS = 10.0  # for one message
LAST_SECONDS = 15.0  # that the end of the process waits for what is still to be sent
MOST_WAITING = 20
_FOR_MAC = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"
Json = dict[str, Any]
Post = Callable[[str, Json], None]


def post(url: str, message: Json) -> None:
    """Send a message, within :data:`SECONDS` in all; of the answer nothing but its status is read.

    Raises ComponentError, which says why it did not arrive; ValueError, ImportError or httpx.InvalidURL, whose texts may hold the address,
    for an address or a proxy that cannot be used.
    """
    client = JsonClient(url, timeout=SECONDS, retries=0)
    try:
        client.tell(message)
    finally:
        client.close()


def show(title: str, text: str) -> None:
    """A note on this machine's desktop. Raises OSError where there is none, and subprocess.SubprocessError where it fails."""
    if platform.system() == "Darwin":
        command = ["osascript", "-e", _FOR_MAC, title, text]
    else:
        command = ["notify-send", "--app-name=RLHF Studio", "--", title, html.escape(text, quote=False)]
    if shutil.which(command[0]) is None:
        raise OSError(S_(f"there is no {command[0]} on this machine"))
    subprocess.run(command, check=True, timeout=SECONDS, stdin=subprocess.DEVNULL, capture_output=True)


class Notifier:
    """Tells those whom ``engine.notify`` of a run names.

    Args:
        name: what the pages call the run.
        permissions: whose ``notify`` has the addresses.
        event: stores an event of the run.
        post, show: as the functions of this module; replaced in tests.
    """

    def __init__(
        self,
        run_dir: Path,
        name: str,
        config: StageConfig,
        permissions: Permissions,
        event: Callable[[EventRecord], None],
        post: Post = post,
        show: Callable[[str, str], None] = show,
    ) -> None:
        self._run, self._name, self._language = run_dir.resolve().name, name, language()
        self._urls = permissions.notify
        self._names = [name for name in config.engine.notified if name == DESKTOP or name in self._urls]  # others: the run does not begin
        self._event, self._post, self._show = event, post, show
        self._raised: set[str] = set()
        self._failed: set[str] = set()
        self._waiting: queue.Queue[Json | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._send, name="notify", daemon=True)
        if self._names:
            self._thread.start()

    def alarms(self, events: Iterable[EventRecord], step: int) -> None:
        """Tell of those events that are alarms, each kind once in the life of this process."""
        for event in events:
            if is_alarm(event.level, event.kind) and event.kind not in self._raised:
                self._raised.add(event.kind)
                self._tell("alarm", event.text, {"kind": event.kind, "step": step})

    def ended(self, state: str, cause: str, step: int, facts: Mapping[str, Any]) -> None:
        """Tell that the run has ended, and wait until that is sent, for some seconds at most."""
        with speaking(self._language):
            end = _("{state} after step {step}").format(state=_(state), step=step)
        self._tell("end", end + (f": {cause}" if cause else ""), {"state": state, "step": step, **facts})
        self.close()

    def close(self) -> None:
        """Send what waits, and take no more."""
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._waiting.put(None, timeout=LAST_SECONDS)
            self._thread.join(LAST_SECONDS)

    def _tell(self, what: str, sentence: str, more: Json) -> None:
        if not self._names:
            return
        with speaking(self._language):
            text = f"{self._name}: {told(sentence)}"
        # ``text`` and ``content`` are what the addresses of chat programs show
        message = {"event": what, "run": self._run, "name": self._name, "time": time.time(), **more, "text": text, "content": text}
        with contextlib.suppress(queue.Full):  # whoever cannot be reached for so long is told no more
            self._waiting.put_nowait(message)

    def _send(self) -> None:
        while (message := self._waiting.get()) is not None:
            for name in self._names:
                try:
                    if name == DESKTOP:
                        self._show("RLHF Studio", message["text"])
                    else:
                        self._post(self._urls[name], message)
                except (ComponentError, OSError, ImportError, httpx.InvalidURL, subprocess.SubprocessError, ValueError) as error:
                    self._say_lost(name, error)

    def _say_lost(self, name: str, error: Exception) -> None:
        if name in self._failed:
            return
        self._failed.add(name)
        own = str(error) if name == DESKTOP and isinstance(error, OSError) else ""
        why = f"it {error}" if isinstance(error, ComponentError) else own or type(error).__name__
        self._event(EventRecord("warning", "notify", f"{name} could not be told: {why}. It is tried again with the next message."))
