"""What findings about settings have in common."""

from __future__ import annotations

from typing import Any

from rlhf_studio.analysis.records import OF_SETTINGS, Evidence, Finding, Level


def settings_finding(
    name: str, level: Level, title: str, rule: str, cause: str, advice: str, changes: dict[str, Any] | None = None, *, setting: str
) -> Finding:
    """A finding that holds from before the first step; ``setting`` is what to look at."""
    return Finding(f"{OF_SETTINGS}{name}", level, title, 0, rule, [Evidence(setting)], cause, advice, changes or {})


def times(factor: float) -> str:
    """4500.0 -> "4,500 times", 2.5 -> "2.5 times"."""
    return f"{factor:,.0f} times" if factor >= 10 else f"{factor:.2g} times"
