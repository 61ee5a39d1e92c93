"""The examples that a supervised stage learns from, as the run's event ``examples`` counts them.

Its data has the counts ``rows`` (read), ``examples`` (learned from), ``held_out``, ``cut`` (examples that lost part of their prompt),
``left_out`` (by reason), ``counted_tokens`` (tokens that the loss is taken over) and ``shared`` (held-out examples that training sees,
too). What is missing is not checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlhf_studio.analysis.doctor.check import SUPERVISED, Course, check
from rlhf_studio.analysis.doctor.recorded import RecordedRun
from rlhf_studio.analysis.doctor.series import ALARM, NOTE, WARNING
from rlhf_studio.analysis.doctor.stages.losses import whole_number
from rlhf_studio.analysis.records import Evidence
from rlhf_studio.config import SFTRunConfig
from rlhf_studio.language import _
from rlhf_studio.units import percent

FAMILY = "Examples"

SOME, MOST = 0.2, 0.5  # shares of the examples or rows
LEAK = 0.1  # share of the held-out examples: from here on a held-out loss says little about new texts
FEW_TOKENS = 2  # a response's one token and its end
LONGEST = 32768


def _course(run: RecordedRun, level: int, text: str, changes: dict[str, Any] | None = None) -> Course:
    """The same at every step: the data was so from the beginning."""
    step_levels = np.full(len(run.steps), level, dtype=np.int8)
    return Course(step_levels, lambda since, last: [Evidence(text)], changes=changes or {}, from_start=True)


@check(
    "examples-cut",
    FAMILY,
    title="Many examples are cut",
    rule=f"above {percent(SOME)} of the examples lost the beginning of their prompt; warning: {percent(MOST)}",
    cause="They have more tokens than the longest example may have, so the model learns answers to questions that it sees only in part.",
    advice="Allow longer examples as far as memory and the model's positions allow, or leave the long ones out.",
    stages=SUPERVISED,
)
def examples_cut(run: RecordedRun) -> Course | None:
    counts = run.event_data("examples")
    cut, used = whole_number(counts, "cut"), whole_number(counts, "examples")
    if cut is None or not used:
        return None
    share = cut / used
    data = getattr(run.config, "data", None)
    most = getattr(data, "max_tokens", LONGEST)
    changes = {"data.max_tokens": min(2 * most, LONGEST)} if most < LONGEST else {}
    return _course(
        run,
        WARNING if share > MOST else NOTE if share > SOME else 0,
        _("{cut:,} of {used:,} examples are cut").format(cut=cut, used=used),
        changes,
    )


@check(
    "rows-left-out",
    FAMILY,
    title="Much of the data is left out",
    rule=f"above {percent(SOME)} of the rows left out; warning: {percent(MOST)}",
    cause="Rows are empty, repeated, too long, or equal in both responses. Often another column was meant.",
    advice="See by which reasons they are left out, and look at such rows.",
    stages=SUPERVISED,
)
def rows_left_out(run: RecordedRun) -> Course | None:
    data = run.event_data("examples")
    rows, left_out = whole_number(data, "rows"), data.get("left_out")
    if not rows or not isinstance(left_out, dict):
        return None
    counts = {str(reason): count for reason in left_out if (count := whole_number(left_out, reason))}
    share = sum(counts.values()) / rows
    reasons = _reasons(sorted(counts.items(), key=lambda item: -item[1]))
    text = _("{count:,} of {rows:,} rows: {reasons}").format(count=sum(counts.values()), rows=rows, reasons=reasons)
    return _course(run, WARNING if share > MOST else NOTE if share > SOME else 0, text)


def _reasons(counts: Sequence[tuple[str, int]]) -> str:
    return _(", ").join(f"{count:,} {_(reason)[:60]}" for reason, count in counts[:3])


@check(
    "few-tokens-count",
    FAMILY,
    title="Hardly any token counts",
    rule=f"fewer than {FEW_TOKENS} tokens for each example that the loss is taken over; alarm: none at all",
    cause="The responses are empty or cut away, or the tokens that should count are taken for part of the prompt.",
    advice="Look at an example as the model reads it: the tokens that count are marked. Is the response column the right one?",
    stages=("sft",),
)
def few_tokens_count(run: RecordedRun) -> Course | None:
    counts = run.event_data("examples")
    tokens, used = whole_number(counts, "counted_tokens"), whole_number(counts, "examples")
    if tokens is None or not used:
        return None
    level = ALARM if tokens == 0 else WARNING if tokens < FEW_TOKENS * used else 0
    learns_prompts = isinstance(run.config, SFTRunConfig) and run.config.sft.loss_on == "text"
    text = _("{tokens:,} tokens count, of {used:,} examples").format(tokens=tokens, used=used)
    return _course(run, level, text, {} if learns_prompts else {"sft.loss_on": "text"})


@check(
    "held-out-seen",
    FAMILY,
    title="Held-out examples are in the training data",
    rule=f"any held-out example that training sees, word for word; warning: above {percent(LEAK)} of them",
    cause="The held-out loss then falls also where the model only learns by heart, and nothing shows that.",
    advice="Hold out other examples, or let a share of the data be set aside; repeats go together then.",
    stages=SUPERVISED,
)
def held_out_seen(run: RecordedRun) -> Course | None:
    counts = run.event_data("examples")
    shared, in_all = whole_number(counts, "shared"), whole_number(counts, "held_out")
    if shared is None or not in_all:
        return None
    data = getattr(run.config, "data", None)
    changes = {"data.eval": ""} if getattr(data, "eval", "") and getattr(data, "eval_share", 0) > 0 else {}
    level = WARNING if shared > LEAK * in_all else NOTE if shared else 0
    return _course(run, level, _("{shared:,} of {all:,} held-out examples").format(shared=shared, all=in_all), changes)
