"""The replay of a run, as the pages ask for it: whoever may watch a run may play it back."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import gradio as gr
from starlette.responses import Response

from rlhf_studio.analysis.replay import replay_of
from rlhf_studio.language import language, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.records import ENDED
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import sent
from rlhf_studio.ui.live.payloads import encode_text
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.serving.bounded import Bounded, TooBusy

REMEMBERED = 24
Version = tuple[int, int, bool, str]
"""What a replay depends on: epoch, newest step, whether the run has ended, its name."""


class Replays:
    """Makes replays in a thread of its own, one after the other. The last ones are kept until their run has gone a step further."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._work = Bounded("replay", threads=1, waiting=40)
        self._known: OrderedDict[tuple[str, str], tuple[Version, bytes]] = OrderedDict()  # for the thread alone

    @callable_by(Role.VIEWER, most_bytes=4_000)
    async def replay(self, data: Any, request: gr.Request) -> Response:
        """What :func:`~rlhf_studio.analysis.replay.replay_of` says of ``data``'s ``run``; with a ``problem`` where there is nothing."""
        try:
            body = await self._work.run(lambda: self._body(sent.run_id(data)))
        except (StoreError, TooBusy) as error:
            body = encode_text({"problem": told(error)})
        return sent.as_json(body)

    def close(self) -> None:
        """Take no more questions."""
        self._work.close()

    def _body(self, run: str) -> bytes:
        reader = self._workspace.reader(run)
        status = self._workspace.status(run)
        version, key = (status.epoch, status.step, status.state in ENDED, status.name), (run, language())
        known_version, body = self._known.get(key, (None, b""))
        if known_version != version:
            body = encode_text(replay_of(reader))
        self._known[key] = version, body
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return body
