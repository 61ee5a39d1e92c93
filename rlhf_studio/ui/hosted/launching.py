"""The app as a FastAPI app: our own routes and rules around Gradio's pages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from rlhf_studio.language import language, speaking
from rlhf_studio.ui import theme
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.door import BoundedHeads, Door, Functions
from rlhf_studio.ui.hosted.space import HUB
from rlhf_studio.ui.serving.browser_rules import BrowserRules
from rlhf_studio.ui.serving.replies import COMPRESSION_LEVEL, reads_gzip
from rlhf_studio.ui.serving.spoken import SPOKEN, Spoken
from rlhf_studio.ui.visiting.modes import on_a_space
from rlhf_studio.ui.visiting.owner import Login, add_login

LOOK_SECONDS = 0.02  # between two looks of the queue for what programs ask


class PagesCompressed(GZipMiddleware):
    """Compresses what browsers load; what they ask of functions is compressed where it is answered."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        packed = scope["type"] == "http" and scope["method"] == "GET" and reads_gzip(Headers(scope=scope))
        await (super().__call__ if packed else self.app)(scope, receive, send)


class Pages(gr.Blocks):
    """Gradio's pages. The queue starts only where an event goes through it, or when the first program asks. It looks for work a thousand
    times a second, and a run on this machine needs the CPU: where only programs use it, it looks less often."""

    queue_began = False

    def run_startup_events(self) -> None:
        """As Gradio does it when the server starts."""
        if self._pages_wait():
            self.begin_queue()
        else:
            self.is_running = True
            self.create_limiter()

    def begin_queue(self) -> None:
        """Start the queue, where that has not been done. For the event loop alone."""
        if not self.queue_began:
            self.queue_began = True
            if not self._pages_wait():
                self._queue.sleep_when_free, self._queue.progress_update_sleep_when_free = LOOK_SECONDS, 10 * LOOK_SECONDS
            super().run_startup_events()

    async def process_api(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As Gradio does it, in the language of the event's own request: the queue works in a task that was begun by somebody else's."""
        request = kwargs.get("request")
        scope = getattr(getattr(request, "request", request), "scope", {})  # Gradio's request has Starlette's in it
        with speaking(scope.get(SPOKEN, language())):
            return await super().process_api(*args, **kwargs)

    def _pages_wait(self) -> bool:
        """Whether an event of the pages goes through the queue."""
        return any(event.queue for event in self.fns.values())


def web_app(
    demo: gr.Blocks, access: Access, root: Path, routes: Sequence[Route], login: Login | None = None, *, mcp: bool = False
) -> FastAPI:
    """The app to serve, with ``routes`` beside Gradio's, and a ``login`` where there is one. ``root``: the workspace.

    ``mcp``: the functions for programs are MCP tools as well. Nothing is shared, recorded, monitored or served that the pages do not need.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, routes=list(routes))
    app.add_middleware(Door, access=access, functions=Functions(demo), root=root, logs_in=login is not None)
    if login is not None:
        add_login(app, login)  # before the door, which asks the session who it is
    app.add_middleware(BoundedHeads)
    app.add_middleware(BrowserRules, hub=HUB if on_a_space(os.environ) else "")
    app.add_middleware(Spoken)
    app.add_middleware(PagesCompressed, compresslevel=COMPRESSION_LEVEL)  # around those which read and change what is sent
    demo.space_id = None  # no bar with the Space's name: it loads pictures and letters from other websites, which are told who reads
    demo.state_session_capacity = 1000  # no page stores state there; without a limit, made-up sessions could fill the memory
    mounted: FastAPI = gr.mount_gradio_app(
        app,
        demo,
        "/",
        show_error=access.loopback,
        run_history=False,
        enable_monitoring=False,
        mcp_server=mcp,
        ssr_mode=False,
        pwa=False,
        allowed_paths=[],
        max_file_size="5mb",
        footer_links=["api"],
        theme=theme.theme(),
        css=theme.page_css(),
    )
    return mounted
