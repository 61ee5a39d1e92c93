"""The memory plan and the time of a run as rows for the Train page. Pure: no disk, no Gradio."""

from __future__ import annotations

from typing import Any

from rlhf_studio.config_io import walk_fields
from rlhf_studio.estimate.memory import Part, Plan
from rlhf_studio.estimate.savings import Change
from rlhf_studio.runs.pace import Pace
from rlhf_studio.ui.outlook import duration, size

Json = dict[str, Any]
NOTES = {
    "Framework": "Python and the libraries; on a GPU the driver's context.",
    "Policy": "The weights that learn, and the frozen base under LoRA.",
    "Reference": "A frozen copy of the policy. With LoRA it is the same weights with the adapters off.",
    "Critic": "The value head, and a separate critic's own trunk.",
    "Reward models": "All of them together.",
    "Gradients": "One number for each trained weight.",
    "Optimizer": "AdamW's two moments of each trained weight.",
    "Prompts": "Texts and token ids of all prompts, as far as their number is known.",
    "KV cache": "Keys and values of the responses that are sampled together.",
    "Prefill": "What the policy needs while it reads the prompts of those responses, all at once.",
    "Next-token odds": "Odds of every token of the vocabulary, for the responses that are sampled together.",
    "Merged adapters": "Base and adapters as one matrix while sampling; the base's own weights are kept beside it.",
    "Weights laid out": "A second layout of large matrices, in which sampling multiplies faster; kept for the whole run.",
    "Logits": "Scores of every token of the vocabulary, for one micro-batch.",
    "Activations": "What the forward pass keeps for the backward pass, for one micro-batch.",
    "Scoring": "What the reward models need while they read.",
}


def memory_view(plan: Plan, change: Change | None) -> Json:
    """The table of parts, the total against what is free, and advice when it may not fit."""
    free = plan.machine.free
    total = plan.unknown if plan.low is None or plan.high is None else span(plan.low, plan.high)
    where = "" if free is None else f"{size(free)} free" + (f" on {plan.machine.name}" if plan.machine.device == "cuda" else "")
    state = "unknown" if plan.fits is None else "fits" if plan.fits else "too_large" if plan.too_large else "tight"
    return {
        "rows": [{"name": part.name, "parameters": _count(part), "size": _bytes(part), "help": NOTES[part.name]} for part in plan.parts],
        "total": total[:1].upper() + total[1:],
        "free": where,
        "state": state,
        "advice": _advice(state, change),
    }


def _advice(state: str, change: Change | None) -> str:
    if state not in ("tight", "too_large"):
        return ""
    start = "This may not fit." if state == "tight" else "This does not fit."
    if change is None:
        return f"{start} No single change is enough: use a smaller model, or several changes together."
    titles = {name: field.title or name for name, field in walk_fields()}
    value = {"true": "on", "false": "off"}.get(change.value, change.value)
    return f"{start} Cheapest change that fits: {titles[change.setting]} {value} saves {size(change.saves)} ({change.price})."


def _count(part: Part) -> str:
    if part.parameters is None:
        return "unknown" if part.low is None else ""
    return short_count(part.parameters) if part.parameters else "–"


def _bytes(part: Part) -> str:
    return "unknown" if part.low is None or part.high is None else span(part.low, part.high)


def span(low: int, high: int) -> str:
    """``0.4 to 0.7 GB``: one figure when both read the same, one unit when both have it."""
    first, last = size(low), size(high)
    if first == last:
        return last
    number, unit = first.rsplit(" ", 1)
    return f"{number} to {last}" if last.endswith(unit) else f"{first} to {last}"


def short_count(count: int) -> str:
    """1130000 -> "1.1 M"."""
    for unit, scale in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}" if count < 100 * scale else f"{count / scale:,.0f} {unit}"
    return str(count)


def time_rows(steps: int, pace: Pace | None, estimate: tuple[float, float] | None) -> list[dict[str, str]] | None:
    """Seconds per step and the whole run: from an earlier run, else from this machine's measured rate; None when neither is known."""
    if pace is not None:
        source = "Measured in an earlier run with these settings." if pace.exact else "Scaled from an earlier run of the same models."
        about = "" if pace.exact else "about "
        each, whole = f"{about}{_seconds(pace.seconds)}", f"about {duration(pace.seconds * steps / 60)}"
    elif estimate is not None:
        source = "From this machine's measured matrix rate: rough, a first run tells better."
        low, high = estimate
        each, whole = f"{_seconds(low)} to {_seconds(high)}", f"{duration(low * steps / 60)} to {duration(high * steps / 60)}"
    else:
        return None
    return [{"label": "Per step", "value": each, "help": source}, {"label": "Whole run", "value": whole, "help": source}]


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 10 else f"{value:,.0f} s"
