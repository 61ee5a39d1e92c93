"""How Gradio is launched: what it is given, and the variables that it reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from rlhf_studio.ui import theme
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.door import Door
from rlhf_studio.ui.hosted.space import HUB
from rlhf_studio.ui.serving.browser_rules import BrowserRules
from rlhf_studio.ui.serving.replies import Compressed
from rlhf_studio.ui.visiting.modes import on_a_space

QUEUE_SECONDS = 0.05
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


def rest_when_idle(demo: gr.Blocks) -> None:
    """Let Gradio's queue look for work twenty times a second, not a thousand: nobody notices, and a run on this machine needs the CPU."""
    demo._queue.sleep_when_free = demo._queue.progress_update_sleep_when_free = QUEUE_SECONDS


def ask_nobody_else(demo: gr.Blocks) -> None:
    """Keep Gradio's bar with the Space's name off the page: it loads pictures and letters from other websites, which are told who reads."""
    demo.space_id = None


def launch_settings(host: str, port: int | None, access: Access, demo: gr.Blocks, root: Path) -> dict[str, Any]:
    """What is passed to Gradio: nothing is shared, recorded, monitored or served that the pages do not need. ``root``: the workspace."""
    passed = [
        Middleware(BrowserRules, hub=HUB if on_a_space(os.environ) else ""),
        Middleware(Compressed),
        Middleware(Door, access=access, demo=demo, root=root),
    ]
    return {
        "server_name": host,
        "server_port": port,
        "app_kwargs": {"middleware": passed},
        "prevent_thread_lock": True,
        "quiet": True,
        "share": False,
        "inbrowser": False,
        "show_error": access.loopback,
        "run_history": False,
        "enable_monitoring": False,
        "mcp_server": False,
        "ssr_mode": False,
        "pwa": False,
        "strict_cors": True,
        "allowed_paths": [],
        "max_file_size": "5mb",
        "state_session_capacity": 1000,  # no page keeps anything there; without a limit, invented sessions could fill the memory
        "footer_links": [],
        "theme": theme.theme(),
        "css": theme.page_css(),
    }
