"""What a class shares for as long as the app runs: the link that makes a student, where the teacher is, what students may do."""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TeachersPlace:
    """Where the teacher is: a page and its parameters in the address. ``seq`` grows with every move; 0 leads nobody anywhere."""

    seq: int = 0
    page: str = ""
    params: Mapping[str, str] = field(default_factory=dict)


class Classroom:
    """What a class shares. Its methods may be called from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._token = secrets.token_urlsafe(9)  # short: some will type it
        self._place = TeachersPlace()
        self._moves = 0
        self.students_start_runs = True

    def admits(self, shown: str) -> bool:
        """Whether this is the token of the class link."""
        return hmac.compare_digest(shown.encode("utf-8", "replace"), self._token.encode())

    def link(self, *, renew: bool = False) -> str:
        """The token of the class link; with ``renew`` a new one, which ends the old one at once."""
        with self._lock:
            if renew:
                self._token = secrets.token_urlsafe(9)
            return self._token

    @property
    def place(self) -> TeachersPlace:
        """Where the teacher leads."""
        return self._place

    def lead(self, page: str, params: Mapping[str, str]) -> None:
        """The teacher is here now; an empty page leads nobody any more."""
        with self._lock:
            self._moves += 1
            self._place = TeachersPlace(self._moves if page else 0, page, dict(params))
