"""What a Space's environment says about it."""

from __future__ import annotations

import re
from collections.abc import Mapping

HUB = "https://huggingface.co"
_SPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")


def duplicate_link(environment: Mapping[str, str]) -> str:
    """Where people make a copy of this Space of their own; empty where the app is not on a Space, or it does not say which one it is."""
    name = environment.get("SPACE_ID", "").strip()
    return f"{HUB}/spaces/{name}?duplicate=true" if _SPACE.fullmatch(name) else ""


def own_address(environment: Mapping[str, str]) -> str:
    """The Space's own address, without the frame of huggingface.co; empty elsewhere."""
    name = environment.get("SPACE_HOST", "").split(",")[0].strip()
    return f"https://{name}/" if name else ""
