"""What a part of a road came to, as numbers; the sentences are made from them (:mod:`headlines`, :mod:`verdict`)."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlhf_studio.analysis.doctor import diagnose
from rlhf_studio.analysis.doctor.in_counts import PHRASES
from rlhf_studio.analysis.doctor.phrases import counted_response, rising
from rlhf_studio.analysis.ends import FIRST_EVENTS, headline_ends
from rlhf_studio.analysis.evaluation.answers import PolicyAnswers, by_policy
from rlhf_studio.analysis.evaluation.intervals import NOTHING
from rlhf_studio.analysis.evaluation.report import report_of
from rlhf_studio.analysis.series import evenly
from rlhf_studio.config import EvaluationRunConfig
from rlhf_studio.config.usual import usual_rate
from rlhf_studio.jobs.road.state import Comparison, TrainingEnds
from rlhf_studio.language import _
from rlhf_studio.runs.reader import RunReader


@dataclass(frozen=True)
class Example:
    """What the first and the last policy of an evaluation answer to one prompt.

    Attributes:
        score_before, score_after: by the measure that decides; None where it has none.
        gained: where this prompt stands among all, by what its answer gained: "most", "the middle", "least"; empty without scores.
    """

    prompt: str
    before: str
    after: str
    score_before: float | None
    score_after: float | None
    gained: str = ""


@dataclass(frozen=True)
class Examples:
    """Some answers before and after, and what holds of all of them.

    Attributes:
        decides: the measure of the scores: ``gold``, ``judge`` or ``score``.
        better, worse: to how many of ``of`` prompts the last policy's answer has a higher score than the first one's, and a lower.
        phrase: what many answers of the last policy say and those of the first did not, as a sentence; empty for nothing.
    """

    shown: list[Example]
    decides: str = ""
    better: int = 0
    worse: int = 0
    of: int = 0
    phrase: str = ""


def ends_of(reader: RunReader) -> TrainingEnds | None:
    """The course of a training run; None where it has recorded nothing of it. Raises StoreError."""
    status = reader.status()
    ends = headline_ends(reader, status.stage)
    if ends is None:
        return None
    kind = diagnose(reader).verdict.kind if status.stage == "ppo" else ""
    config = reader.config()
    weights, examples = (_first_event(reader, kind).get(name) for kind, name in (("memory", "weights"), ("examples", "examples")))
    rate, usual = getattr(config, status.stage).learning_rate, usual_rate(config, weights, examples)
    held_out = _held_out(reader, ends.metric)
    return TrainingEnds(ends.metric, ends.first, ends.last, held_out, kind, status.step, rate, usual.rate if usual else 0.0)


def comparison_of(reader: RunReader) -> Comparison | None:
    """The last policy of an evaluation against its first; None with one policy or without a common measure. Raises StoreError."""
    report = report_of(reader)
    others = [policy for policy in report.policies if policy.name != report.first]
    if not others or report.decides not in others[-1].win_rates:
        return None
    rate, gain = others[-1].win_rates[report.decides].rate, others[-1].differences.get(report.decides, NOTHING)
    if rate.value is None:
        return None
    numbers = rate.value, rate.low, rate.high, report.prompts, gain.value, gain.low, gain.high
    return Comparison(report.decides, *numbers, same_answer=_same_answer(reader, others[-1].name))


def _same_answer(reader: RunReader, policy: str) -> int:
    """To how many prompts a policy gives its most frequent answer."""
    given = {(answer.response, answer.place) for answer in reader.answers() if answer.policy == policy}
    return max(Counter(response for response, _ in given).values(), default=0)


def examples_of(reader: RunReader, most: int) -> Examples:
    """Answers to ``most`` prompts of an evaluation that show what changed and hide nothing: of all, those that gained most, middling and
    least by the measure that decides. Without scores the first prompts; none with one policy.

    Raises StoreError.
    """
    answers = list(by_policy(reader.answers()).values())
    if len(answers) < 2:
        return Examples([])
    first, last = answers[0], answers[-1]
    config = reader.config()
    is_chat = isinstance(config, EvaluationRunConfig) and config.data.chat_template
    frame = shared_frame([record.prompt for record in first.records]) if is_chat else ("", "")
    decides = report_of(reader).decides

    def score(of: PolicyAnswers, index: int) -> float | None:
        value = float(of.measures[decides][index]) if decides in of.measures else math.nan
        return value if math.isfinite(value) else None

    both: list[Example] = []
    for index, record in enumerate(first.records):
        other = next((i for i, own in enumerate(last.records) if (own.place, own.draw) == (record.place, record.draw)), None)
        if record.draw == 0 and other is not None:
            texts = record.prompt.removeprefix(frame[0]).removesuffix(frame[1]), record.response, last.records[other].response
            both.append(Example(*texts, score(first, index), score(last, other)))
    scores = [(example.score_before, example.score_after) for example in both]
    gains = [after - before for before, after in scores if before is not None and after is not None]
    counts = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains), len(gains)
    return Examples(_spread(both, gains, most), decides, *counts, _phrase(both))


def _phrase(examples: Sequence[Example]) -> str:
    """The phrase that took over between the two policies, as a sentence; empty where none did."""
    before = [counted_response(example.before, True) for example in examples]
    found = rising(before, [counted_response(example.after, True) for example in examples])
    if found is None or not found.takes_over:
        return ""
    said = _(PHRASES[found.verb]).format(count=found.after, of=found.after_of, text=found.text)
    return _("{phrase} at the end, {before} at the start.").format(phrase=said, before=found.before)


def _spread(examples: list[Example], gains: Sequence[float], most: int) -> list[Example]:
    if len(gains) < len(examples) or min(most, len(examples)) < 2:
        return examples[:most]
    order = sorted(range(len(examples)), key=lambda index: -gains[index])
    places = evenly(len(order), most)
    named = {places[0]: "most", places[-1]: "least"}
    return [replace(examples[order[place]], gained=named.get(place, "the middle")) for place in places]


def shared_frame(prompts: Sequence[str]) -> tuple[str, str]:
    """(what a chat template writes before what the person says, and after it), by what all prompts share; empty with fewer than two.

    The beginning ends with a line; the end begins with a line break or a bracket, so that no word of a person is taken for the template's.
    """
    if len(set(prompts)) < 2:
        return "", ""
    before = os.path.commonprefix(list(prompts))
    after = os.path.commonprefix([prompt[::-1] for prompt in prompts])[::-1]
    start = re.search(r"[\n<\[]", after)
    return before[: before.rfind("\n") + 1], after[start.start() :] if start else ""


def _held_out(reader: RunReader, metric: str) -> int:
    """How many examples a held-out number was measured on, from the run's event ``examples``; 0 for other numbers."""
    if "/eval_" not in metric:
        return 0
    held_out = _first_event(reader, "examples").get("held_out")
    return held_out if type(held_out) is int and held_out > 0 else 0


def _first_event(reader: RunReader, kind: str) -> dict[str, Any]:
    """The data of an event that comes early in a run; empty without one."""
    return next((event.data for event in reader.events_since(0, FIRST_EVENTS) if event.kind == kind), {})
