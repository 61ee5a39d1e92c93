"""The door: every request passes it before Gradio sees the request.

It refuses a request under a name that is not the app's, for an address that the table of :mod:`rlhf_studio.ui.roles` does not have, from
somebody who may not call what it asks for, or with a body that is too long, too slow or not of the kind that pages send. A refusal is one
sentence with a status of 400 or above; nothing is printed.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import posixpath
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import gradio as gr
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route, compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlhf_studio.ui import html, roles
from rlhf_studio.ui.access import Access, with_our_cookie_only
from rlhf_studio.ui.roles import Role, Rule, rule_of
from rlhf_studio.ui.serving import bodies
from rlhf_studio.ui.serving.bodies import RequestRefused
from rlhf_studio.ui.serving.bounded import TooBusy, Turns
from rlhf_studio.ui.serving.caching import CachedAssets, with_rule, without_version
from rlhf_studio.ui.serving.replies import WithoutRoot, reply_of
from rlhf_studio.ui.visiting.identity import NewVisitors
from rlhf_studio.ui.visiting.links import Links
from rlhf_studio.ui.visiting.modes import Mode

MOST_BYTES = {Role.VIEWER: 64_000, Role.PLAYER: 64_000, Role.OPERATOR: 1_000_000}
VIEWERS_AT_ONCE = 4  # calls of viewers that run at the same time; the others wait
VIEWERS_WAITING = 60
STARTS_AT_ONCE = 4  # starts of players that are handled at the same time; Once checks one after the other
STARTS_WAITING, STARTS_OF_ONE = 20, 3  # starts of all players that wait; starts of one player, waiting or handled
MOST_SESSIONS = 1000  # sessions whose stream of Gradio's queue may be requested
LONGEST_PATH, LONGEST_PART = 1000, 255
MOST_HEADER_BYTES, LONGEST_HEADER = 16_000, 8_000  # bytes of all headers together, and of one header with its name
LONGEST_QUERY = 8_000
UNKNOWN_NAME = (
    "This app does not answer under this name. Whoever runs it can allow the name: start it with --allow-host NAME,"
    " or set RLHF_STUDIO_HOSTS.\n"
)
FOREIGN_PAGE = (
    "This came from a page of another website. Behind a proxy that changes the Host header, the app must be started with --allow-host NAME."
)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f\\]")
_FORWARDED_NAME = re.compile(r"[A-Za-z0-9._:,\[\] -]{0,500}")


Ask = Callable[[Any, Request], Awaitable[Any]]


@dataclass(frozen=True)
class Function:
    """A handler or server function of the app: what it declares, and how it is called.

    ``ask`` calls a server function, past Gradio's routes, which cost more than most answers do; None for a handler. A ``public`` one is
    for programs (:mod:`rlhf_studio.ui.api`): it is called at all of Gradio's addresses, also through the queue.
    """

    rule: Rule
    waits: bool  # for a thread
    queued: bool = False
    ask: Ask | None = None
    public: bool = False


def handlers_of(demo: gr.Blocks) -> dict[int, Function]:
    """The handlers of an app's events by their index. Raises TypeError for one that declares nothing."""
    return {
        index: Function(
            rule_of(event.fn), not inspect.iscoroutinefunction(event.fn), bool(event.queue), public=event.api_visibility == "public"
        )
        for index, event in demo.fns.items()
        if event.fn is not None
    }


def server_functions_of(demo: gr.Blocks) -> dict[tuple[int, str], Function]:
    """The server functions of an app by component and name. Raises TypeError for one that declares nothing."""
    return {
        (index, function.__name__): Function(rule_of(function), not inspect.iscoroutinefunction(function), ask=ask_of(function))
        for index, block in demo.blocks.items()
        for function in getattr(block, "server_fns", None) or ()
    }


def ask_of(function: Callable[..., Any]) -> Ask:
    """A server function as a coroutine function of (what was sent, the request). A function that is not async runs in a thread."""
    takes_request = len(inspect.signature(function).parameters) > 1

    async def ask(data: Any, request: Request) -> Any:
        given = (data, request) if takes_request else (data,)
        return await function(*given) if inspect.iscoroutinefunction(function) else await run_in_threadpool(function, *given)

    return ask


def health_route() -> Route:
    """The route that says whether the app works. It needs no thread, so it is answered even when all threads are busy."""

    async def health(request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok\n", headers={"Cache-Control": "no-store"})

    return Route(roles.HEALTH_ROUTE, health, methods=["GET"])


class Functions:
    """All that can be called in an app whose pages are complete. Raises TypeError where one declares nothing."""

    def __init__(self, demo: gr.Blocks) -> None:
        self.handlers, self.server_functions = handlers_of(demo), server_functions_of(demo)
        self.inputs = {index: len(event.inputs) for index, event in demo.fns.items()}
        public = {index: event.fn for index, event in demo.fns.items() if event.fn is not None and self.handlers[index].public}
        self.named = {function.__name__: index for index, function in public.items()}
        self.arguments = {index: _defaults(function) for index, function in public.items()}
        self.is_mcp_server: Callable[[], bool] = lambda: bool(demo.mcp_server)  # known once the app is mounted
        self.begin_queue: Callable[[], None] = getattr(demo, "begin_queue", lambda: None)


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """A public function's arguments by name, each with its default; ``...`` where there is none."""
    parts = [part for part in inspect.signature(function).parameters.values() if part.annotation is not gr.Request]
    return {part.name: ... if part.default is inspect.Parameter.empty else part.default for part in parts}


class BoundedHeads:
    """Middleware that refuses headers and addresses that are longer than any browser's, before anything reads them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is short enough."""
        headers = scope.get("headers", ())
        lengths = [len(name) + len(value) for name, value in headers]
        if sum(lengths) > MOST_HEADER_BYTES or max(lengths, default=0) > LONGEST_HEADER:
            detail = f"The headers may have {MOST_HEADER_BYTES} bytes together, and each of them {LONGEST_HEADER}."
            await JSONResponse({"detail": detail}, 431, {"connection": "close"})(scope, receive, send)
        elif len(scope.get("query_string", b"")) > LONGEST_QUERY:
            await JSONResponse({"detail": "This address is too long."}, 414, {"connection": "close"})(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class Door:
    """Middleware around the whole app.

    Args:
        functions: what may be called, see :class:`Functions`.
        root: the workspace, see :class:`WithoutRoot`.
        logs_in: whether people may log in, see :mod:`rlhf_studio.ui.visiting.owner`.
    """

    def __init__(self, app: ASGIApp, access: Access, functions: Functions, root: Path, logs_in: bool = False) -> None:
        linked: ASGIApp = Links(CachedAssets(app), access)
        self._app = NewVisitors(linked, access.visitors, access.path) if access.mode is Mode.SPACE else linked
        self._access, self._called, self._without_root = access, functions, WithoutRoot(root)
        self._files = [path.as_posix() for path in html.static_paths()]
        routes = [(key.partition(" "), role) for key, role in {**roles.ROUTES, **(roles.LOGIN_ROUTES if logs_in else {})}.items()]
        self._patterns = [(method, path, compile_path(path)[0], role) for (method, _, path), role in routes]
        self._turns, self._starts = Turns(VIEWERS_AT_ONCE, VIEWERS_WAITING), Turns(STARTS_AT_ONCE, STARTS_WAITING, STARTS_OF_ONE)
        self._sessions: OrderedDict[str, None] = OrderedDict()  # that have joined Gradio's queue
        self._events: OrderedDict[str, None] = OrderedDict()  # calls by name whose answers nobody has asked for yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is refused; pass on everything else."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        try:
            if scope["type"] != "http":
                raise RequestRefused(403, "There are no websockets here.")
            scope = with_our_cookie_only(scope)
            if not self._is_our_name(scope):
                await PlainTextResponse(UNKNOWN_NAME, 421, {"connection": "close"})(scope, receive, send)
                return
            path, role = self._route(scope)
            without_root = self._without_root if role < Role.OPERATOR else None
            private_send = without_root.sender(scope, send) if without_root else send
            if scope["method"] != "POST":
                self._check_read(path, scope)
                # The page itself is never kept: it comes with the visitor's own cookie, and its text holds the name that was asked for.
                sender = with_rule(private_send, b"no-store") if path in roles.PAGE_ROUTES else private_send
                await self._app(_without(scope, b"range"), receive, sender)
                return
            request = Request(scope, receive)
            call, function = await self._call(path, role, request, receive)
            async with self._turn(role, function, request):
                if function is not None and function.ask is not None:
                    answer = await _answer(function.ask, call["data"], request)
                    await reply_of(answer, request.headers, without_root)(scope, receive, send)
                else:
                    called = path in roles.PROGRAM_ROUTES and path not in roles.MCP_ROUTES
                    await self._app(*_with_body(scope, receive, call), self._noting(private_send) if called else private_send)
        except (RequestRefused, TooBusy) as error:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            refused = error if isinstance(error, RequestRefused) else RequestRefused(503, str(error))
            # the connection is closed, so that the rest of the body need not be read
            await JSONResponse({"detail": refused.detail}, refused.status, refused.headers)(scope, receive, send)

    def _is_our_name(self, scope: Scope) -> bool:
        names = [value.decode("latin-1") for key, value in scope["headers"] if key == b"host"]
        return len(names) == 1 and self._access.hosts.knows(names[0])

    def _route(self, scope: Scope) -> tuple[str, Role]:
        """(the matching path of the table, the sender's role). Raises :class:`RequestRefused` for what this sender may not ask for."""
        path = scope["path"]
        if _CONTROLS.search(path) or len(path) > LONGEST_PATH or any(len(part.encode()) > LONGEST_PART for part in path.split("/")):
            raise RequestRefused(400, "This address is not valid.")
        if not _FORWARDED_NAME.fullmatch(Headers(scope=scope).get("x-forwarded-host", "")):
            raise RequestRefused(400, "The header X-Forwarded-Host is not valid.")
        rows = [(required, row) for method, row, pattern, required in self._patterns if method == scope["method"] and pattern.match(path)]
        if not rows:
            raise RequestRefused(404, "There is nothing here.")
        required, row = max(rows)
        request = Request(scope)
        role = self._access.role_of(request)
        self._require(request, role, required)
        return row, role

    def _require(self, request: Request, role: Role, required: Role) -> None:
        if required is Role.NOBODY:
            raise RequestRefused(403, "The pages do not need this, so nobody may use it.")
        if role < required:
            why = self._access.why_not_rate() if required is Role.PLAYER else self._access.why_not(request)
            raise RequestRefused(403, FOREIGN_PAGE if role is Role.ANYONE else why)

    def _check_read(self, path: str, scope: Scope) -> None:
        """Refuse reads that Gradio answers with an error of its own, or with more than the pages need."""
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if path in roles.PAGE_ROUTES and {"page", "deep_link"} & query.keys():
            raise RequestRefused(404, "There is nothing here.")
        if path == roles.FILE_ROUTE:
            file_path = without_version(scope)[0]["path"].partition("file=")[2]
            if posixpath.normpath(file_path) != file_path or not any(f"{file_path}/".startswith(f"{file}/") for file in self._files):
                raise RequestRefused(403, "This file is not part of the pages.")
        if path == roles.STREAM_ROUTE:
            session = bodies.session_of(query.get("session_hash", [""])[0])
            if session not in self._sessions:
                raise RequestRefused(404, "Nothing was started in this session.")

        if path in roles.EVENT_ROUTES and self._events.pop(scope["path"].rpartition("/")[2], False) is False:
            raise RequestRefused(404, "There is no such event, or its answer was asked for already.")

    def _joined(self, session: str) -> None:
        self._sessions[session] = None
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)

    def _noting(self, send: Send) -> Send:
        """Notes the event that the answer names: Gradio fails when it is asked for another one."""
        body = bytearray()

        async def tell(message: Message) -> None:
            body.extend(message.get("body", b""))
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                with contextlib.suppress(ValueError, KeyError):
                    self._events[str(json.loads(body)["event_id"])] = None
                    if len(self._events) > MOST_SESSIONS:
                        self._events.popitem(last=False)
            await send(message)

        return tell

    async def _call(self, path: str, role: Role, request: Request, receive: Receive) -> tuple[dict[str, Any], Function | None]:
        """What a body asks for, and the function it names. Raises :class:`RequestRefused`."""
        for_programs = path in roles.PROGRAM_ROUTES
        body = await bodies.read_body(request.headers, receive, MOST_BYTES[Role.VIEWER if for_programs else role])
        sent = bodies.read_object(body)
        if for_programs:
            return self._program_call(path, role, request, sent)
        if path == roles.CANCEL_ROUTE:
            return bodies.cancel_call(sent), None
        if path in roles.RESET_ROUTES:
            return bodies.reset_call(sent), None
        if path in roles.COMPONENT_ROUTES:
            call = bodies.component_call(sent)
            function = self._called.server_functions.get((call["component_id"], call["fn_name"]))
        else:
            call = bodies.event_call(sent, self._called.inputs)
            function = self._called.handlers.get(call["fn_index"])
            if function is not None and not function.public and function.queued != (path == roles.QUEUE_ROUTE):
                raise RequestRefused(404, "This event is asked for at another address.")
        if function is None:
            raise RequestRefused(404, "There is no such function.")
        if not function.public or path != roles.QUEUE_ROUTE:  # there, the function's own refusal is a sentence in the program's error
            self._require(request, role, function.rule.role_in(self._access.mode))
        if function.rule.most_bytes is not None and len(body) > function.rule.most_bytes:
            raise RequestRefused(413, f"The body may have {function.rule.most_bytes} bytes at most.")
        if path == roles.QUEUE_ROUTE:
            self._called.begin_queue()
            self._joined(call["session_hash"])
        return call, function

    def _program_call(self, path: str, role: Role, request: Request, sent: dict[str, Any]) -> tuple[dict[str, Any], Function | None]:
        """As :meth:`_call`, at the addresses that are for programs alone."""
        if path in roles.MCP_ROUTES:
            if not self._called.is_mcp_server():
                raise RequestRefused(404, "This app is no MCP server: it was started without --mcp.")
            return bodies.mcp_message(sent), None  # the function itself refuses whoever may not call it, in words that an agent reads
        index = self._called.named.get(request.scope["path"].rstrip("/").rpartition("/")[2])
        if index is None:
            raise RequestRefused(404, f"There is no such function; there are: {', '.join(self._called.named)}.")
        function, by_name = self._called.handlers[index], path in roles.CALL_BY_NAME_ROUTES
        self._require(request, role, function.rule.role_in(self._access.mode))
        names = self._called.arguments[index]
        values = bodies.named_call(sent, names, by_name=by_name)
        self._called.begin_queue()
        return (dict(zip(names, values, strict=True)) if by_name else {"data": values}), function

    @asynccontextmanager
    async def _turn(self, role: Role, function: Function | None, request: Request) -> AsyncIterator[None]:
        """Wait for a turn. Only a few calls of viewers and players run at the same time, so that they cannot keep the machine from its
        operator. Only a few starts of one person wait, so that nobody blocks the others. Raises RequestRefused and TooBusy."""
        if role >= Role.OPERATOR or function is None:
            yield
            return
        if function.rule.is_for_players(self._access.mode) and not self._access.plays(request):
            raise RequestRefused(403, self._access.why_not(request))
        if not function.waits:
            yield
            return
        turns, own = (self._starts, self._access.starter(request).key) if function.rule.starts else (self._turns, "")
        async with turns.turn(own):
            yield


async def _answer(ask: Ask, data: Any, request: Request) -> Any:
    try:
        return await ask(data, request)
    except gr.Error:  # as Gradio answers it; the page says in its own words that something failed
        return PlainTextResponse("Internal Server Error", 500)


def _without(scope: Scope, header: bytes) -> Scope:
    """The request without a header: Gradio fails on ranges that are not valid, and no file of ours is long."""
    return {**scope, "headers": [(key, value) for key, value in scope["headers"] if key != header]}


def _with_body(scope: Scope, receive: Receive, data: Any) -> tuple[Scope, Receive]:
    """The request with the JSON of ``data`` as its body."""
    body = json.dumps(data).encode()
    replaced = (b"content-length", b"transfer-encoding", b"content-encoding")
    headers = [(key, value) for key, value in scope["headers"] if key not in replaced]
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return {**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}, again
