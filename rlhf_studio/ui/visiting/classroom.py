"""What the line above the pages asks in a class, and how the class link is shown: as text, and as a QR code."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import gradio as gr
import segno

from rlhf_studio.ui import sent
from rlhf_studio.ui.access import CLASS_QUERY, Access
from rlhf_studio.ui.hosts import host_name, is_loopback
from rlhf_studio.ui.visiting.modes import Mode

Json = dict[str, Any]
PAGES = ("learn", "train", "live", "runs", "talk", "feedback", "evaluate", "road")
MOST_PARAMETERS, LONGEST = 12, 300
_NAME = re.compile(r"[a-z_]{1,20}")


class ClassPage:
    """What the line above the pages asks in a class."""

    def __init__(self, access: Access) -> None:
        self._access, self._room = access, access.room

    def functions(self) -> list[Callable[..., Any]]:
        """The server functions."""
        return [self.class_now, self.class_link, self.class_change]

    async def class_now(self, data: Any, request: gr.Request) -> Json:
        """Where the teacher is; asked every few seconds by everyone who follows, so it looks at memory only."""
        place = self._room.place
        return {"seq": place.seq, "page": place.page, "params": dict(place.params)}

    def class_link(self, data: Any, request: gr.Request) -> Json:
        """The link for students with its QR code, and what they may do. For the teacher."""
        if self._access.mode is not Mode.CLASSROOM:
            return {"problem": "This app was not started with --classroom."}
        link = class_link(address_for(request.headers.get("host", "")), self._room.link())
        return {"link": link, "code": code_of(link), "runs": self._room.students_start_runs, "leads": self._room.place.seq > 0}

    def class_change(self, data: Any, request: gr.Request) -> Json:
        """What the teacher changes: ``renew`` the link, ``runs`` of students, or where to ``lead`` ({page, params}, or null to stop)."""
        self._access.require_operator(request, data)
        if self._access.mode is not Mode.CLASSROOM:
            return {"problem": "This app was not started with --classroom."}
        if sent.member(data, "renew") is True:
            self._room.link(renew=True)
        if isinstance(runs := sent.member(data, "runs"), bool):
            self._room.students_start_runs = runs
        if isinstance(data, dict) and "lead" in data:
            self._room.lead(*_place_of(data["lead"]))
        return self.class_link(data, request)


def class_link(address: str, token: str) -> str:
    """What students open."""
    return f"{address}?{CLASS_QUERY}={token}"


def address_for(host: str) -> str:
    """The app's address as others reach it: where the teacher's own is this computer's local name, its address in the network."""
    name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "")
    lan = lan_address() if is_loopback(host_name(host)) else ""
    return f"http://{lan}{f':{port}' if port else ''}/" if lan else f"http://{host}/"


def _place_of(lead: Any) -> tuple[str, dict[str, str]]:
    """The page and parameters that a teacher's page sent. Raises gr.Error for what is no place."""
    if lead is None:
        return "", {}
    page, params = sent.member(lead, "page"), sent.member(lead, "params")
    known = isinstance(params, dict) and len(params) <= MOST_PARAMETERS
    if page not in PAGES or not known or not all(_is_parameter(name, value) for name, value in params.items()):
        raise gr.Error("This is no place in the app.", print_exception=False)
    return page, params


def _is_parameter(name: Any, value: Any) -> bool:
    return isinstance(name, str) and bool(_NAME.fullmatch(name)) and isinstance(value, str) and len(value) <= LONGEST


def code_of(text: str) -> list[str]:
    """A QR code as rows of 1 (dark) and 0, with no border."""
    return ["".join("1" if dark else "0" for dark in row) for row in segno.make_qr(text, error="m").matrix]


def printed_code(text: str) -> list[str]:
    """A QR code for a terminal, two rows in a line, with the border that cameras need."""
    rows = list(segno.make_qr(text, error="m").matrix_iter(border=2))
    rows += [[0] * len(rows[0])] if len(rows) % 2 else []
    signs = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}  # bright on a dark terminal
    return ["".join(signs[bool(a), bool(b)] for a, b in zip(*pair, strict=True)) for pair in zip(rows[::2], rows[1::2], strict=True)]


def lan_address() -> str:
    """This computer's address in its network; empty where there is none. Nothing is sent: only a route is looked up."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # an address for documentation (RFC 5737)
            found = str(probe.getsockname()[0])
    except OSError:
        return ""
    return "" if found.startswith("127.") else found
