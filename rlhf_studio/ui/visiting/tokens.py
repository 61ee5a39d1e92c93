"""The tokens that people send: reading them from cookies, and comparing them."""

from __future__ import annotations

import hmac


def is_token(value: str, token: str) -> bool:
    """Whether ``value`` is the token, compared in a time that tells nothing about it. No value equals an empty token."""
    return bool(token) and hmac.compare_digest(value.encode("utf-8", "replace"), token.encode())


def token_in_cookies(header: str, cookie_name: str) -> str:
    """The token in the value of a Cookie header, of the cookie called ``cookie_name``; empty when there is none.

    Python's own reader of cookies takes minutes over some headers, so nothing from outside is passed to it.
    """
    token = ""
    for cookie in header.split(";"):
        name, _, value = cookie.partition("=")
        if name.strip() == cookie_name:
            token = value.strip()
    quoted = len(token) > 1 and token[0] == token[-1] == '"'  # a token with "/" or "=" is written in quotes
    return token[1:-1] if quoted else token
