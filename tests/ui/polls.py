"""Polls of a feed, as the Live page sends them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rlhf_studio.ui.live.feed import LiveFeed
from rlhf_studio.ui.live.snapshot import Position
from tests.waiting import wait_until

Json = dict[str, Any]


def poll(feed: LiveFeed, position: Position) -> Json:
    """One poll and its answer."""
    reply: Json = json.loads(b"{" + feed.poll(position) + b"}")
    return reply


def ask(feed: LiveFeed, position: Position, until: Callable[[Json], Any] = lambda reply: True) -> Json:
    """Poll until the run has been read, and the answer satisfies ``until``."""
    answers: list[Json] = []

    def answered() -> bool:
        answers.append(poll(feed, position))
        return not answers[-1].get("opening") and bool(until(answers[-1]))

    wait_until(answered)
    return answers[-1]
