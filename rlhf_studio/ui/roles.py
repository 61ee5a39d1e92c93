"""Who may call what. Each function of a page declares it at its definition (:func:`callable_by`); Gradio's own addresses have a table here.

:class:`~rlhf_studio.ui.door.Door` holds everyone to both. A function that declares nothing is an error when the app starts; an address that
is not in the table is refused. ``tests/access`` tries every function and address as everybody, in every mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from rlhf_studio.ui.visiting.modes import Mode

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Role(IntEnum):
    """Who sends a request. A role may do all that the roles before it may do.

    ``NOBODY`` is no person's role: a row with it is refused to everyone.
    """

    ANYONE = 0  # whoever reaches the address, another website's page included
    VIEWER = 1  # our own page, or a program: may watch runs
    PLAYER = 2  # a rater, a student or a visitor of a Space: may vote, and in a class or a Space start small runs
    OPERATOR = 3  # may start, change and delete
    NOBODY = 4


# --- functions ---------------------------------------------------------------------------------------------------------------

_RULE = "callable_by"
PLAYED = frozenset(mode for mode in Mode if mode.visitors_play)


@dataclass(frozen=True)
class Rule:
    """Who may call a function, and what bounds it.

    An ``async`` function runs in the loop that answers everyone: it looks at memory, or waits for threads of its own. Any other runs in a
    thread, in a turn: of those who are no operators a few at once.

    Attributes:
        role: the least role that may.
        players_in: modes in which visitors and students may as well. The function holds them to their own runs, and to what they may start.
        starts: whether it starts a run, for which players wait in a line of their own.
        most_bytes: of the body that asks for it; None as much as the sender may send.
    """

    role: Role
    players_in: frozenset[Mode] = frozenset()
    starts: bool = False
    most_bytes: int | None = None

    def is_for_players(self, mode: Mode) -> bool:
        """Whether those who play may call it, not raters."""
        return mode in self.players_in

    def role_in(self, mode: Mode) -> Role:
        """The least role that may call it in a mode."""
        return min(self.role, Role.PLAYER) if self.is_for_players(mode) else self.role


def callable_by(
    role: Role, *, players_in: Iterable[Mode] = (), starts: bool = False, most_bytes: int | None = None
) -> Callable[[FunctionT], FunctionT]:
    """Declares who may call a handler or server function; arguments as :class:`Rule`."""

    def declare(function: FunctionT) -> FunctionT:
        setattr(function, _RULE, Rule(role, frozenset(players_in), starts, most_bytes))
        return function

    return declare


def rule_of(function: Callable[..., Any]) -> Rule:
    """What a function declares; one that ``functools.wraps`` another declares the same. Raises TypeError where it declares nothing."""
    rule = getattr(function, _RULE, None)
    if not isinstance(rule, Rule):
        raise TypeError(f"{function.__qualname__} says nothing of who may call it: give it @callable_by(Role....)")
    return rule


# --- addresses ---------------------------------------------------------------------------------------------------------------

_ANYONE, _VIEWER, _NOBODY = Role.ANYONE, Role.VIEWER, Role.NOBODY

# Where a request's body names a function; what that one declares decides as well.
COMPONENT_ROUTES = ("/gradio_api/component_server", "/gradio_api/component_server/")
DIRECT_ROUTES = (
    *("/gradio_api/run/{api_name}", "/gradio_api/run/{api_name}/"),
    *("/gradio_api/api/{api_name}", "/gradio_api/api/{api_name}/"),
)
QUEUE_ROUTE = "/gradio_api/queue/join"
STREAM_ROUTE = "/gradio_api/queue/data"
CANCEL_ROUTE = "/gradio_api/cancel"
CALL_ROUTES = ("/gradio_api/call/{api_name}", "/gradio_api/call/{api_name}/")
CALL_BY_NAME_ROUTES = ("/gradio_api/call/v2/{api_name}", "/gradio_api/call/v2/{api_name}/")
EVENT_ROUTES = ("/gradio_api/call/{api_name}/{event_id}", "/gradio_api/call/v2/{api_name}/{event_id}")
MCP_ROUTES = ("/gradio_api/mcp", "/gradio_api/mcp/")
PROGRAM_ROUTES = frozenset((*CALL_ROUTES, *CALL_BY_NAME_ROUTES, *MCP_ROUTES))
AGENTS_ROUTE = "/agents.md"
RESET_ROUTES = ("/gradio_api/reset", "/gradio_api/reset/")
FILE_ROUTE = "/gradio_api/file={path_or_url:path}"
PAGE_ROUTES = ("/", "/config", "/config/")
HEALTH_ROUTE = "/health"
WORDS_ROUTE = "/words/{language}.json"

# Gradio's own routes, as "METHOD /path". Nobody may use those that the pages do not need.
ROUTES: dict[str, Role] = {
    # the page's document and its files, which hold nothing about runs
    **{f"{method} /": _ANYONE for method in ("GET", "HEAD")},
    **{f"{method} {FILE_ROUTE}": _ANYONE for method in ("GET", "HEAD")},  # our scripts and styles only, see the door
    "GET /assets/{path:path}": _ANYONE,
    "GET /static/{path:path}": _ANYONE,
    "GET /theme.css": _ANYONE,
    "GET /favicon.ico": _ANYONE,
    "GET /manifest.json": _ANYONE,
    "GET /robots.txt": _ANYONE,
    # whether the app serves, asked by containers and proxies; the answer tells nothing else
    **{f"{method} {HEALTH_ROUTE}": _ANYONE for method in ("GET", "HEAD")},
    **{f"{method} {WORDS_ROUTE}": _ANYONE for method in ("GET", "HEAD")},  # what the scripts say in another language
    # what an operator had made of a run: whoever may watch the run may have it
    **{f"{method} /exports/{{run}}/{{name}}": _VIEWER for method in ("GET", "HEAD")},
    # what the page says to the server
    **{f"POST {path}": _VIEWER for path in (*COMPONENT_ROUTES, *DIRECT_ROUTES, QUEUE_ROUTE, CANCEL_ROUTE, *RESET_ROUTES)},
    f"GET {STREAM_ROUTE}": _VIEWER,
    **{f"GET {path}": _VIEWER for path in ("/config", "/config/")},
    **{f"GET /gradio_api/app_id{slash}": _VIEWER for slash in ("", "/")},
    "GET /gradio_api/startup-events": _VIEWER,  # asked by Gradio itself when it starts
    # uploads: no page takes a file through Gradio (settings are read by the browser and sent as text)
    "POST /gradio_api/upload": _NOBODY,
    "GET /gradio_api/upload_progress": _NOBODY,
    "POST /gradio_api/process_recording": _NOBODY,
    # for programs: what the functions of ui/api are, and other ways to them; all other functions are private
    **{f"POST {path}": _VIEWER for path in (*CALL_ROUTES, *CALL_BY_NAME_ROUTES)},
    **{f"GET {path}": _VIEWER for path in (*EVENT_ROUTES, "/gradio_api/info", "/gradio_api/info/")},
    **{f"{method} {AGENTS_ROUTE}": _VIEWER for method in ("GET", "HEAD")},
    **{f"POST {path}": _VIEWER for path in MCP_ROUTES},
    **{f"{method} /openapi.json": _NOBODY for method in ("GET", "HEAD")},
    "GET /gradio_api/openapi.json": _NOBODY,
    "GET /gradio_api/queue/status": _NOBODY,
    # media, other servers, other parts of Gradio that the pages do not use
    **{f"{method} /gradio_api/proxy={{url_path:path}}": _NOBODY for method in ("GET", "HEAD")},
    "GET /gradio_api/file/{path:path}": _NOBODY,
    "GET /gradio_api/heartbeat/{session_hash}": _NOBODY,
    "GET /gradio_api/custom_component/{id}/{environment}/{type}/{file_name}": _NOBODY,
    "POST /gradio_api/stream/{event_id}": _NOBODY,
    "POST /gradio_api/stream/{event_id}/close": _NOBODY,
    "GET /gradio_api/stream/{session_hash}/{run}/{component_id}/playlist.m3u8": _NOBODY,
    "GET /gradio_api/stream/{session_hash}/{run}/{component_id}/{segment_id}.{ext}": _NOBODY,
    "GET /gradio_api/stream/{session_hash}/{run}/{component_id}/playlist-file": _NOBODY,
    "GET /gradio_api/deep_link": _NOBODY,
    "GET /gradio_api/theme.css": _NOBODY,
    "GET /svelte/{path:path}": _NOBODY,
    "GET /pwa_icon": _NOBODY,
    "GET /pwa_icon/{size}": _NOBODY,
    **{f"GET /gradio_api/runs{slash}": _NOBODY for slash in ("", "/")},
    # Gradio's own accounts, figures and development tools
    **{f"POST /login{slash}": _NOBODY for slash in ("", "/")},
    "GET /logout": _NOBODY,
    **{f"GET /gradio_api/{name}{slash}": _NOBODY for name in ("user", "login_check", "token") for slash in ("", "/")},
    **{f"GET /monitoring{rest}": _NOBODY for rest in ("", "/summary", "/{key}")},
    "GET /gradio_api/dev/reload": _NOBODY,
    **{f"POST /gradio_api/{name}{slash}": _NOBODY for name in ("vibe-edit", "undo-vibe-edit", "vibe-code") for slash in ("", "/")},
    **{f"POST /gradio_api/vibe-starter-queries{slash}": _NOBODY for slash in ("", "/")},
    **{f"GET /gradio_api/vibe-code{slash}": _NOBODY for slash in ("", "/")},
}

# Where the owner of a Space may log in; the provider sends the browser back from its own website.
LOGIN_ROUTES = {f"GET {path}": _ANYONE for path in ("/login/huggingface", "/login/callback", "/logout")}
