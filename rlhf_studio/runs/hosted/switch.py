"""Variables of the environment that switch something on or off."""

from __future__ import annotations

from collections.abc import Mapping


def switch(environment: Mapping[str, str], name: str, *, on: str, off: str) -> bool | None:
    """Whether an environment variable is 1. None when it is not set.

    ``on`` and ``off`` say in words what 1 and 0 mean. Raises ValueError for any other value.
    """
    value = environment.get(name, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{name} must be 1 ({on}) or 0 ({off}), not {value!r}")
    return value == "1" if value else None
