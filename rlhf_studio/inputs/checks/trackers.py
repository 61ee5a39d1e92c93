"""Whether the trackers that a run reports to are installed, without importing them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from rlhf_studio.config import StageConfig
from rlhf_studio.config.io import Problem
from rlhf_studio.language import S_


def tracker_problems(config: StageConfig) -> Iterator[Problem]:
    """One problem per tracker whose package is missing, with the command that installs it."""
    for name in config.engine.trackers:
        if find_spec(name) is None:
            message = S_(f"{name} is not installed: pip install {name}; or take it out of the list")
            yield Problem("engine.report_to", message)
