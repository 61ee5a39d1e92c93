"""How long browsers may keep what they were sent. The address of a script or a style names its version: it is kept for good."""

from __future__ import annotations

from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlhf_studio.ui import html

FOR_EVER = b"public, max-age=31536000, immutable"
_ASSETS = html.ASSETS.as_posix()


def without_version(scope: Scope) -> tuple[Scope, str]:
    """The request for a script or a style without the version in its address, and that version (:func:`.html.assets_at_start`)."""
    before, at, rest = scope["path"].partition(f"/file={_ASSETS}@")
    version, _, name = rest.partition("/")
    return ({**scope, "path": f"{before}/file={_ASSETS}/{name}"}, version) if at else (scope, "")


def _never_changes(path: str, version: str) -> bool:
    """Whether the address names the present version, and the file is still as it was at the app's start."""
    start = html.assets_at_start()
    try:
        return version == start.version and start.states.get(path) == html.state_of(Path(path))
    except OSError:
        return False


class CachedAssets:
    """Middleware that answers addresses with a version. With an old version or none, browsers ask before they use their copy."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on the request; tell the browser how long it may keep the answer."""
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
            scope, version = without_version(scope)
            path = scope["path"].partition("/file=")[2]
            if path.startswith(f"{_ASSETS}/"):
                send = with_rule(send, FOR_EVER if _never_changes(path, version) else b"no-cache")
        await self._app(scope, receive, send)


def with_rule(send: Send, rule: bytes) -> Send:
    """The answer with this rule for caches; what was refused is not kept. Without a rule, browsers would guess."""

    async def send_with_rule(message: Message) -> None:
        if message["type"] == "http.response.start":
            other_headers = [(name, value) for name, value in message["headers"] if name != b"cache-control"]
            kept = rule if message["status"] < 400 else b"no-store"
            message = {**message, "headers": [*other_headers, (b"cache-control", kept)]}
        await send(message)

    return send_with_rule
