"""Comparing what somebody shows with a secret of the app."""

from __future__ import annotations

import hmac


def is_token(shown: str, token: str) -> bool:
    """Whether this is the token, found in a time that says nothing about it; an empty token is nobody's."""
    return bool(token) and hmac.compare_digest(shown.encode("utf-8", "replace"), token.encode())
