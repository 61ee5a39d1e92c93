"""The secrets that people show: in which cookie, and whether it is the right one."""

from __future__ import annotations

import hmac


def is_token(shown: str, token: str) -> bool:
    """Whether this is the token, found in a time that says nothing about it; an empty token is nobody's."""
    return bool(token) and hmac.compare_digest(shown.encode("utf-8", "replace"), token.encode())


def token_in_cookies(header: str, wanted: str) -> str:
    """The token in the value of a Cookie header, of the cookie called ``wanted``; empty when there is none.

    Python's own reader of cookies takes minutes over some headers, so nothing from outside is passed to it.
    """
    shown = ""
    for cookie in header.split(";"):
        name, _, value = cookie.partition("=")
        if name.strip() == wanted:
            shown = value.strip()
    quoted = len(shown) > 1 and shown[0] == shown[-1] == '"'  # a token with "/" or "=" is written in quotes
    return shown[1:-1] if quoted else shown
