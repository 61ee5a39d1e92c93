"""Asking a server for one JSON object, over HTTP: with limits of time and size, asked again while the server cannot answer.

A text goes only to the address that the person gave: redirects are not followed. Neither the address nor the key, which may be secrets,
gets into a message or a log.
"""

from __future__ import annotations

import json
import logging
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from rlhf_studio.config import Permissions, ServerReward
from rlhf_studio.config_io import ConfigError, Problem
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.registry import refuse_problems

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
        self, url: str, *, timeout: float, retries: int, key: str = "", connections: int = 1, sleep: Callable[[float], None] = time.sleep
    ):
        """``timeout`` in seconds, for one request; ``key`` is sent as a bearer token; ``connections`` is the most at the same time."""
        self._url, self._timeout, self._retries, self._sleep = url, timeout, retries, sleep
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._client = httpx.Client(
            headers=headers,
            timeout=timeout,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=connections, keepalive_expiry=IDLE_SECONDS),
            verify=ssl.create_default_context(),  # the certificates that the system trusts
            proxy=_proxy_for(url),
            trust_env=False,  # what the environment says about proxies was read by _proxy_for
        )

    def post(self, message: Mapping[str, Any], most_bytes: int) -> dict[str, Any]:
        """The answer, an object of at most ``most_bytes`` bytes. Raises :class:`ComponentError`, which says the cause alone."""
        attempt = 0
        while True:
            try:
                return self._once(message, most_bytes)
            except _Unavailable as error:
                if attempt == self._retries:
                    times = "once" if attempt == 0 else f"{attempt + 1} times"
                    raise ComponentError(f"{error} (asked {times})") from None
            self._sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt))
            attempt += 1

    def _once(self, message: Mapping[str, Any], most_bytes: int) -> dict[str, Any]:
        too_slow = _Unavailable(f"did not answer within {self._timeout:g} s")
        try:
            with self._client.stream("POST", self._url, content=json.dumps(message).encode("ascii")) as response:
                if not response.is_success:
                    raise _refusal(response.status_code)
                body = self._read(response, most_bytes)
        except (TimeoutError, httpx.TimeoutException):
            raise too_slow from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise _Unavailable(f"cannot be reached: {_reason(error)}") from None
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise ComponentError("its answer is not a JSON object")
        return answer

    def _read(self, response: httpx.Response, most_bytes: int) -> bytes:
        """The body. httpx limits the time of each read alone, and a server could send a byte at a time for ever; this limits the whole."""
        deadline = time.monotonic() + self._timeout
        body = bytearray()
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > most_bytes:
                raise ComponentError(f"its answer is longer than {most_bytes} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError
        return bytes(body)


def connect(
    settings: ServerReward, permissions: Permissions, field: str, *, connections: int = 1, sleep: Callable[[float], None] = time.sleep
) -> JsonClient:
    """The client for the server that a component names. Nothing is asked yet.

    Raises :class:`ConfigError` when no server of that name was given at the start, or when the environment's proxy cannot be used.
    """
    refuse_problems(settings, field, permissions)
    url, key = permissions.urls[settings.server], permissions.keys.get(settings.server, "")
    try:
        return JsonClient(url, timeout=settings.timeout, retries=settings.retries, key=key, connections=connections, sleep=sleep)
    except (ValueError, ImportError) as error:  # ImportError: what a SOCKS proxy needs is not installed
        message = "the proxy that the environment names for this server cannot be used; name one with http:// or https://, or none"
        raise ConfigError([Problem(f"{field}.server", message)]) from error


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


def _proxy_for(url: str) -> str | None:
    """The proxy that the environment names for this address. It cannot reach this machine's own servers, so they are asked directly."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in THIS_MACHINE or urllib.request.proxy_bypass(host):
        return None
    proxy = urllib.request.getproxies().get(parts.scheme)
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy
