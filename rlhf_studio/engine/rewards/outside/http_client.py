"""Asking a server for one JSON object, over HTTP: with limits of time and size, asked again while the server cannot answer.

A text goes only to the address that the person gave: redirects are not followed, and cookies are neither kept nor sent. Neither the
address nor the key, which may be secrets, gets into a message or a log.
"""

from __future__ import annotations

import base64
import importlib
import json
import logging
import ssl
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx

from rlhf_studio.config import Permissions, ServerReward
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.outside.deadline import Deadline
from rlhf_studio.engine.rewards.registry import refuse_problems
from rlhf_studio.language import S_

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before the first and between later retries
IDLE_SECONDS = 2.0  # a connection that was idle for longer is not used again: the server may just be closing it
THIS_MACHINE = ("127.0.0.1", "::1", "localhost")

for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)  # below that, they write addresses and headers


class _Unavailable(Exception):
    """The server could not answer now; asking again may help."""


class JsonClient:
    """Posts JSON objects to one address. May be used by several threads at once."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        retries: int,
        key: str = "",
        connections: int = 1,
        sleep: Callable[[float], object] | None = None,
    ):
        """``timeout`` in seconds, for one request; ``key`` is sent as a bearer token; ``connections`` is the most at the same time.

        ``sleep`` makes the pauses between retries. Raises ValueError or ImportError for a proxy that cannot be used.
        """
        self._url, user = _address(httpx.URL(url))
        self._timeout, self._retries, self._sleep = timeout, retries, sleep
        self._headers = {"User-Agent": "rlhf-studio", "Accept": "application/json", "Accept-Encoding": "identity"}
        self._headers["Content-Type"] = "application/json"
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        elif user:
            self._headers["Authorization"] = f"Basic {base64.b64encode(b':'.join(user)).decode()}"
        self._deadline = Deadline()
        self._pool = httpcore.ConnectionPool(
            ssl_context=ssl.create_default_context(),  # the certificates that the system trusts
            proxy=_proxy_for(url),
            max_connections=connections,
            keepalive_expiry=IDLE_SECONDS,
            network_backend=self._deadline,
        )

    def post(self, message: Mapping[str, Any], most_bytes: int, stop: threading.Event | None = None) -> dict[str, Any]:
        """The answer, an object of at most ``most_bytes`` bytes. Raises :class:`ComponentError`, which says the cause alone.

        Once ``stop`` is set, the request is not repeated and a pause before that ends.
        """
        attempt, stop = 0, stop or threading.Event()
        while True:
            try:
                return self._once(message, most_bytes)
            except _Unavailable as error:
                if attempt < self._retries and not stop.is_set():
                    (self._sleep or stop.wait)(min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt))
                attempt += 1
                if attempt > self._retries or stop.is_set():
                    times = S_("once") if attempt == 1 else S_(f"{attempt} times")
                    raise ComponentError(f"{error} (asked {times})") from None

    def tell(self, message: Mapping[str, Any]) -> None:
        """Post once, and read nothing but the status of the answer. Raises :class:`ComponentError`, which says the cause alone."""
        try:
            with self._asked(message):
                pass
        except _Unavailable as error:
            raise ComponentError(str(error)) from None

    def close(self) -> None:
        """Close the connections that are kept open for the next request."""
        self._pool.close()

    def _once(self, message: Mapping[str, Any], most_bytes: int) -> dict[str, Any]:
        with self._asked(message) as response:
            body = self._read(response, most_bytes)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise ComponentError("its answer is not a JSON object")
        return answer

    @contextmanager
    def _asked(self, message: Mapping[str, Any]) -> Iterator[httpcore.Response]:
        """A response whose status says that all is well; what comes of it is read within the same time limit."""
        content = json.dumps(message).encode("ascii")
        try:
            with (
                self._deadline.within(self._timeout),
                self._pool.stream(
                    "POST", self._url, headers=list(self._headers.items()), content=content, extensions={"timeout": {"pool": self._timeout}}
                ) as response,
            ):
                if not 200 <= response.status < 300:
                    raise _refusal(response.status)
                yield response
        except (TimeoutError, httpcore.TimeoutException):
            raise _Unavailable(f"did not answer within {self._timeout:g} s") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, OSError) as error:
            raise _Unavailable(f"cannot be reached: {_reason(error)}") from None

    def _read(self, response: httpcore.Response, most_bytes: int) -> bytes:
        body = bytearray()
        for chunk in response.iter_stream():
            body += chunk
            if len(body) > most_bytes:
                raise ComponentError(f"its answer is longer than {most_bytes} bytes")
            self._deadline.left()
        return bytes(body)


def connect(
    settings: ServerReward, permissions: Permissions, field: str, *, connections: int = 1, sleep: Callable[[float], object] | None = None
) -> JsonClient:
    """The client for the server that a component names. Nothing is asked yet.

    Raises :class:`ConfigError` when no server of that name was given at the start, or when the environment's proxy cannot be used.
    """
    refuse_problems(settings, field, permissions)
    url, key = permissions.urls[settings.server], permissions.keys.get(settings.server, "")
    try:
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        message = f"what follows --reward-url {settings.server}= is not an address that can be asked; write http://HOST/PATH or https://"
        raise ConfigError([Problem(f"{field}.server", message)]) from None
    try:
        return JsonClient(url, timeout=settings.timeout, retries=settings.retries, key=key, connections=connections, sleep=sleep)
    except (ValueError, ImportError, httpx.InvalidURL):  # ImportError: what a SOCKS proxy needs is not installed
        message = "the proxy that the environment names for this server cannot be used; name one with http:// or https://, or none"
        raise ConfigError([Problem(f"{field}.server", message)]) from None  # the cause may show the proxy's password


def _refusal(status: int) -> Exception:
    if status == 429 or status >= 500:
        return _Unavailable(f"answered with status {status}")
    if 300 <= status < 400:
        return ComponentError(f"answered with status {status}, a redirect; redirects are not followed, so give the final address")
    return ComponentError(f"answered with status {status}")


def _reason(error: BaseException) -> str:
    """The system's own words, such as "Connection refused", or the error's type. Never its text, which may hold the address."""
    words = [getattr(item, "strerror", None) for item in _chain(error)]
    return next((word for word in words if word), type(error).__name__)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what it came from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _address(url: httpx.URL) -> tuple[httpcore.URL, tuple[bytes, bytes] | None]:
    """The address without user name and password, and these two."""
    plain = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    return plain, (url.username.encode(), url.password.encode()) if url.userinfo else None


def _proxy_for(url: str) -> httpcore.Proxy | None:
    """The proxy that the environment names for this address. It cannot reach this machine's own servers, so they are asked directly.

    Raises ValueError, ImportError or httpx.InvalidURL when it cannot be used.
    """
    parts = urlsplit(url)
    if parts.hostname in THIS_MACHINE or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy:
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    address, user = _address(httpx.URL(proxy))
    if address.scheme in (b"socks5", b"socks5h"):
        importlib.import_module("socksio")  # httpcore would miss it only at the first request
    elif address.scheme not in (b"http", b"https") or not urlsplit(proxy).hostname:  # it raises what httpx lets pass
        raise ValueError("not a proxy")
    return httpcore.Proxy(address, auth=user)
