"""A scoring server: texts out, scores in, over plain HTTP."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import torch

from rlhf_studio.config import HttpReward, Permissions
from rlhf_studio.engine.rewards.episodes import Answer, Episodes
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.python_function import BYTES_PER_SCORE, SPARE_BYTES, checked_scores, refuse_at_the_door

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before the first and between later retries
CHUNK = 65_536


class _Unavailable(Exception):
    """The server could not answer now; asking again may help."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other: it is not followed, so that texts go only where the person said."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class HttpScorer:
    """Asks a server for the scores of each batch: ``{"prompts", "responses"}`` to ``{"scores"}``."""

    def __init__(self, settings: HttpReward, permissions: Permissions, field: str, sleep: Callable[[float], None] = time.sleep):
        """Raises :class:`ConfigError` when no server of that name was given at the start."""
        refuse_at_the_door(settings, permissions, field)
        self._settings, self._url, self._sleep = settings, permissions.urls[settings.server], sleep
        here = urlsplit(self._url).hostname in ("127.0.0.1", "::1", "localhost")
        # A proxy that the environment names cannot reach this machine's own servers.
        self._opener = urllib.request.build_opener(_NoRedirect, *([urllib.request.ProxyHandler({})] if here else []))

    def __call__(self, episodes: Episodes) -> Answer:
        """The server's scores. Raises :class:`ComponentError`."""
        scores: list[float] = []
        for start in range(0, len(episodes.responses), self._settings.batch_size):
            part = slice(start, start + self._settings.batch_size)
            message: dict[str, Any] = {"prompts": episodes.prompts[part], "responses": episodes.responses[part]}
            if episodes.references is not None:
                message["references"] = episodes.references[part]
            if episodes.chats is not None:
                message["messages"] = episodes.chats[part]
            try:
                scores += checked_scores(self._answer(message), len(message["responses"]))
            except ComponentError as error:
                raise ComponentError(
                    f"the server {self._settings.server}: {error}", None if error.row is None else start + error.row
                ) from error
        return Answer(torch.tensor(scores, dtype=torch.float32))

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        attempt = 0
        while True:
            try:
                return self._once(message)
            except _Unavailable as error:
                if attempt == self._settings.retries:
                    times = "once" if attempt == 0 else f"{attempt + 1} times"
                    raise ComponentError(f"{error} (asked {times})") from None
            self._sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt))
            attempt += 1

    def _once(self, message: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            self._url,
            data=json.dumps(message).encode("ascii"),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            method="POST",
        )
        most = SPARE_BYTES + BYTES_PER_SCORE * len(message["responses"])
        try:
            with self._opener.open(request, timeout=self._settings.timeout) as response:
                body = self._read(response, most)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error.code) from None
        except TimeoutError:
            raise _Unavailable(f"did not answer within {self._settings.timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise _Unavailable(f"did not answer within {self._settings.timeout:g} s") from None
            # never the address: it may hold a secret
            raise _Unavailable(f"cannot be reached: {getattr(reason, 'strerror', None) or type(reason).__name__}") from None
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise ComponentError("its answer is not a JSON object")
        return answer

    def _read(self, response: http.client.HTTPResponse, most: int) -> bytes:
        """The body, within the size and time limits: the socket's own limit is per read, and a slow server could drip for ever."""
        deadline = time.monotonic() + self._settings.timeout
        body = bytearray()
        while chunk := response.read1(CHUNK):
            body += chunk
            if len(body) > most:
                raise ComponentError(f"its answer is longer than {most} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError
        return bytes(body)

    @staticmethod
    def _refusal(status: int) -> Exception:
        if status == 429 or status >= 500:
            return _Unavailable(f"answered with status {status}")
        if 300 <= status < 400:
            return ComponentError(f"answered with status {status}, a redirect; redirects are not followed, so give the final address")
        return ComponentError(f"answered with status {status}")
