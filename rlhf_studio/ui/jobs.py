"""How a page follows a job of a child process: its events so far, and cancelling it. Only who has a job's key can ask for it."""

from __future__ import annotations

from typing import Any

import gradio as gr
from starlette.responses import Response

from rlhf_studio.child_process.service import Service
from rlhf_studio.language import shown
from rlhf_studio.ui import sent
from rlhf_studio.ui.access import Access

MOST_EVENTS = 200  # in one reply


def news(service: Service, access: Access, data: Any, request: gr.Request, gone: str) -> Response:
    """What has happened in a job since the page's last question. It is cheap, and waits for nothing.

    ``since`` is how many events the page has. Gives ``state``, ``place`` (how many answers are made before this one; only loading a model
    does not count), ``events``, and whether there are ``more``. For a job that is no longer remembered, and for somebody who may not ask,
    gives ``gone`` as the ``error``.
    """
    job = service.find(sent.member(data, "key"))
    if job is None or not access.is_operator(request, data):
        return sent.as_json({"error": gone})
    since = sent.member(data, "since")
    first = since if type(since) is int and since >= 0 else 0
    # the state is read before the events: a job that is done then has all of its events
    state, position = job.state, sum(other.request.get("prompt") is not None for other in service.before(job))
    events = job.events[first : first + MOST_EVENTS]
    said = [shown(event, ("error", "text") if event.get("event") in ("failed", "progress") else ("problem", "notes")) for event in events]
    return sent.as_json({"state": state, "place": position, "events": said, "more": len(job.events) > first + len(events)})


def cancel(service: Service, access: Access, data: Any, request: gr.Request) -> None:
    """Stop a job."""
    job = service.find(sent.member(data, "key"))
    if job is not None and access.is_operator(request, data):
        service.cancel(job)
