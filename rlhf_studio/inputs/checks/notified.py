"""Whether those whom a run is to tell of its end and its alarms were named at the start of the program."""

from __future__ import annotations

from collections.abc import Iterator

from rlhf_studio.config import DESKTOP, Permissions, StageConfig
from rlhf_studio.config.io import Problem
from rlhf_studio.language import S_


def notified_problems(config: StageConfig, permissions: Permissions) -> Iterator[Problem]:
    """One problem per name of ``engine.notify`` without an address."""
    for name in config.engine.notified:
        if name != DESKTOP and name not in permissions.notify:
            known = S_(f"; known here: {', '.join([*permissions.notify, DESKTOP])}")
            message = S_(f"nobody is called {name}; start the program with --notify-url {name}=URL{known}")
            yield Problem("engine.notify", message)
