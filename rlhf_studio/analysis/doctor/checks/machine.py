"""The machine: where the time goes, and memory."""

from __future__ import annotations

import re

import numpy as np

from rlhf_studio.analysis.doctor.check import EVERY, TRAINING, Course, check, figure, metric_evidence
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.remedies import less_memory
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.doctor.series import levels, streak, window_mean
from rlhf_studio.analysis.records import Evidence
from rlhf_studio.language import _
from rlhf_studio.runs.records import PHASES
from rlhf_studio.units import percent

FAMILY = "Machine"

TIMED = [phase.name for phase in PHASES.values() if phase.timed]
TIME_STEPS = 10
DOMINATES = 0.85  # share of a step; sampling takes 60 to 80 % elsewhere (prior work on RLHF systems), the update 75 % in the recipes
RECORDING = 0.25  # share of a step that recording should never reach
WORTH = 0.5  # seconds a step: below this nobody waits

NEAR_LIMIT = 0.92  # share of the memory; allocators fail before all of it is used, because free memory lies in pieces
MEMORY_GROWS, GROWTH_STEPS = 1.5, 20  # times what it was so many steps before


@check(
    "one-phase-dominates",
    FAMILY,
    title="One phase takes almost all of the time",
    rule=f"one phase above {percent(DOMINATES)} of the step time (recording: {percent(RECORDING)}) on average over {TIME_STEPS} steps "
    "of more than "
    f"{WORTH:g} s",
    cause="The rest of the machine waits for this phase.",
    advice="Sampling: shorter responses, a larger sampling batch. Scoring: a smaller reward model, or a faster server. "
    "Update: fewer passes, a "
    "larger micro-batch. Recording: fewer recorded responses, or a faster disk.",
)
def one_phase_dominates(run: RunData) -> Course | None:
    total = window_mean(run.column("time/total"), TIME_STEPS)
    shares = {name: window_mean(run.column(f"time/{name}"), TIME_STEPS) / total for name in TIMED}
    over = {name: (share > (RECORDING if name == "record" else DOMINATES)) & (total > WORTH) for name, share in shares.items()}
    dominated = np.any(list(over.values()), axis=0)
    if not dominated.any():
        return Course(levels(note=dominated), lambda since, last: [])
    last = int(np.flatnonzero(dominated)[-1])
    name = max((name for name in TIMED if over[name][last]), key=lambda name: shares[name][last])
    text = _("{what} took {shares} of the last {TIME_STEPS} steps").format(
        what=_(PHASES[name].what), shares=percent(shares[name][last]), TIME_STEPS=TIME_STEPS
    )
    evidence = [Evidence(text, step=int(run.steps[last]), metric=f"time/{name}")]
    return Course(
        levels(note=dominated),
        lambda since, last: evidence,
        title=_("Almost all of the time goes into {what}").format(what=_(PHASES[name].what)),
    )


@check(
    "memory-near-limit",
    FAMILY,
    title="Memory is nearly used up",
    rule=f"peak memory above {percent(NEAR_LIMIT)} of what the machine has (where the run's records say how much), or "
    f"{MEMORY_GROWS:g} times what "
    f"it was {GROWTH_STEPS} steps before, after the first ones",
    cause="Longer responses, larger batches or something that grows with every step. The next long batch may end the run.",
    advice="A smaller micro-batch or sampling batch needs less and changes nothing else; then gradient checkpointing.",
    stages=TRAINING,
)
def memory_near_limit(run: RecordedRun) -> Course | None:
    peak = run.column("memory/peak")
    limit = memory_limit(run)
    near = peak > NEAR_LIMIT * limit if limit else np.zeros(len(peak), dtype=bool)
    before = np.concatenate([np.full(min(GROWTH_STEPS, len(peak)), np.nan), peak[:-GROWTH_STEPS]])
    grows = streak(peak > MEMORY_GROWS * before, 3) & (np.arange(len(peak)) >= GROWTH_STEPS + 5)

    def evidence(since: int, last: int) -> list[Evidence]:
        of = _(" of {limit:.1f} GB").format(limit=limit / 1e9) if limit else ""
        return [Evidence(f"{figure(peak[last] / 1e9)} GB{of}", step=int(run.steps[last]), metric="memory/peak")]

    return Course(levels(note=grows, warning=near), evidence, changes=less_memory(run.config))


def memory_limit(run: RecordedRun) -> float | None:
    """Bytes that the run may use, from its ``memory`` event's ``limit``, or from a GPU's name that says its size; None when not known."""
    for event in run.events:
        if event.kind == "memory" and isinstance(event.data.get("limit"), int | float) and event.data["limit"] > 0:
            return float(event.data["limit"])
    size = re.search(r"\b(\d{1,3}) ?GB\b", run.device)
    return float(size[1]) * 1e9 if size else None


@check(
    "slower",
    FAMILY,
    title="Steps take longer and longer",
    rule="mean step time of 10 steps more than twice that of the first 10, with responses no longer than 1.2 times, for more than 1 s",
    cause="The machine is shared, too hot, or short of memory and swaps.",
    advice="Look at what else runs on it.",
    stages=EVERY,
)
def slower(run: RecordedRun) -> Course | None:
    mean = window_mean(run.column("time/total"), 10)
    length = window_mean(run.column("tokens/response_length"), 10)
    if len(mean) < 10:
        return None
    slow = (mean > 2 * mean[9]) & (mean > mean[9] + 1.0) & ~(length > 1.2 * length[9])
    return Course(
        levels(note=slow),
        metric_evidence(run, "time/total", _("{{}} s a step; {mean:.2f} s on average in the first 10").format(mean=mean[9])),
        length=10,
    )
