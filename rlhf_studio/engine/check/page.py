"""What people get: one line for each check, a last line, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rlhf_studio import __version__
from rlhf_studio.engine.check.checks import Outcome, Task
from rlhf_studio.language import _, bracketed, listing, told
from rlhf_studio.visible import padded

FORMAT = 1
"""Of the JSON file; grows when a reader of older files would read a newer one wrongly."""


def line(outcome: Outcome) -> str:
    """``right      sft           losses of 2 steps as the CPU's ...   1.2 s``."""
    mark, text = {"right": _("right"), "wrong": _("WRONG"), "not tried": "–"}[outcome.state], told(outcome.sentence)
    text = text if outcome.state != "not tried" else _("not tried: {why}").format(why=text)
    return f"{padded(mark, 6)} {outcome.name:13} {text}" + (bracketed(f"{outcome.seconds:.1f} s") if outcome.seconds >= 0.05 else "")


def last_line(outcomes: Sequence[Outcome]) -> str:
    """How many were right, and which were not."""
    count = {state: sum(outcome.state == state for outcome in outcomes) for state in ("right", "not tried")}
    wrong = [outcome.name for outcome in outcomes if outcome.state == "wrong"]
    seconds = sum(outcome.seconds for outcome in outcomes)
    found = _("WRONG: {names}").format(names=listing(wrong)) if wrong else _("nothing is wrong")
    counted = _("{right} right, {not_tried} not tried, {found} ({seconds:.0f} s)")
    return counted.format(right=count["right"], not_tried=count["not tried"], found=found, seconds=seconds)


def is_right(outcomes: Sequence[Outcome]) -> bool:
    """Whether all that was tried is right, and something was tried."""
    states = {outcome.state for outcome in outcomes}
    return "right" in states and "wrong" not in states


def as_json(task: Task, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The JSON file: what was asked for, whether all is right, and every outcome."""
    about = {"format": FORMAT, "program": __version__, "device": task.device, "quick": task.quick, "model": task.model}
    return {**about, "right": is_right(outcomes), "checks": [asdict(outcome) for outcome in outcomes]}
