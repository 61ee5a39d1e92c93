"""The requests of "Send or save", carried out in a child process (:mod:`rlhf_studio.child_process.serving`).

A request is ``{"run_dir", "what", "target", "at", "push", "public", "language"}``. The event ``result`` has ``files``, their names, and the
``address`` on the hub, empty for none.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlhf_studio.child_process.serving import Handler, IsCancelled, Json, Tell
from rlhf_studio.config.io import ConfigError
from rlhf_studio.jobs.export.command import ExportRequest, export
from rlhf_studio.language import ENGLISH, speaking
from rlhf_studio.runs.errors import StoreError

MESSAGES = (ConfigError, StoreError)


def handler(waits: Callable[[], bool]) -> Handler:
    """Nothing is loaded before it is needed."""
    return make


def make(request: Json, tell: Tell, is_cancelled: IsCancelled) -> None:
    """Make one export, in the place of an earlier one of the same name. Raises as :func:`rlhf_studio.jobs.export.command.export`."""
    last: tuple[str, int | None] = ("", None)

    def on_progress(text: str, fraction: float | None) -> None:
        nonlocal last
        now = (text, None if fraction is None else int(100 * fraction))
        if now != last:  # each new sentence, and each further hundredth
            last = now
            tell({"event": "progress", "text": text, "fraction": fraction})

    target, at = {request["what"]: Path(request["target"])}, str(request.get("at", ""))
    export_request = ExportRequest(target, at, push=request.get("push", ""), public=request.get("public") is True, replace=True)
    with speaking(request.get("language", ENGLISH)):
        result = export(Path(request["run_dir"]), export_request, on_progress)
    tell({"event": "result", "files": [path.name for path, _ in result.files], "address": result.address})
