"""A task from the newest run: its answers of the beginning beside those of its end. One click makes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rlhf_studio.analysis.series import evenly
from rlhf_studio.language import N_, _
from rlhf_studio.runs.feedback.exchange import items_of
from rlhf_studio.runs.feedback.records import LONGEST_LINE, NewItem, NewTask
from rlhf_studio.runs.feedback.store import NotPossible
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED, RunStatus
from rlhf_studio.ui.insights import Insights
from rlhf_studio.ui.talk.offered import newest_fit

MOST_PAIRS = 40
"""As many as one person rates in a quarter of an hour; the form of a new task takes all answers of an evaluation."""
STEPS_READ = 12  # of the first third of a run's steps, and of its last third
GUIDELINES = N_("Which answer would you rather read? Take the one that fits the prompt better. Do not reward length by itself.")
SOURCES = ("ppo", "evaluation")


@dataclass(frozen=True)
class Suggestion:
    """The run that a task can be made from with one click."""

    run: str
    name: str
    stage: str


def suggested(runs: Iterable[RunStatus], insights: Insights | None = None) -> Suggestion | None:
    """The newest run that has ended, has answers to compare and still writes useful text; where none does, the newest of them. ``runs``
    are the newest first."""
    ended = [run for run in runs if run.stage in SOURCES and run.state in ENDED and run.step > 0 and run.origin.keeps_model]
    run = newest_fit(ended, {}, insights) or next(iter(ended), None)
    return Suggestion(run.run_id, run.name or run.run_id, run.stage) if run else None


def task_of(reader: RunReader) -> tuple[NewTask, list[NewItem]]:
    """The task and its items. Raises NotPossible where nothing can be compared, and StoreError."""
    status = reader.status()
    items = _of_evaluation(reader) if status.stage == "evaluation" else list(_of_training(reader))
    if not items:
        raise NotPossible(
            _(
                "{name} has no two different answers to one prompt. Evaluate it first: its start and end then answer the same prompts."
            ).format(name=status.name or _("This run"))
        )
    name = _("{name}: which answer is better?").format(name=status.name or status.run_id)
    settings = NewTask(name[:LONGEST_LINE], guidelines=_(GUIDELINES), criterion="better", annotators=2)
    return settings, items[:MOST_PAIRS]


def _of_evaluation(reader: RunReader) -> list[NewItem]:
    """The first policy's answers against the last one's; of one policy, two of its answers to each prompt."""
    answers = reader.answers()
    names = list(dict.fromkeys(answer.policy for answer in answers))
    ends = {*names[:1], *names[-1:]}
    return items_of([answer for answer in answers if answer.policy in ends], "pair")[0]


def _of_training(reader: RunReader) -> Iterator[NewItem]:
    """Prompts that were answered early and late in the run: the watched ones first, then those that training came to twice."""
    watched: dict[int, list[tuple[int, str, str]]] = {}
    for step, record in reader.watched(ends=True):
        watched.setdefault(record.sample, []).append((step, record.prompt, record.response))
    seen: set[str] = set()
    for (first_step, prompt, first), *_between, (last_step, _prompt, last) in (both for both in watched.values() if len(both) > 1):
        seen.add(prompt)
        yield from _pair(prompt, first, last, first_step, last_step)
    steps = reader.rollout_steps()
    third = len(steps) // 3
    early, late = (_by_prompt(reader, part) for part in (steps[:third], steps[len(steps) - third :]))
    for prompt in (prompt for prompt in early if prompt in late and prompt not in seen):
        (first_step, first), (last_step, last) = early[prompt], late[prompt]
        yield from _pair(prompt, first, last, first_step, last_step)


def _by_prompt(reader: RunReader, steps: list[int]) -> dict[str, tuple[int, str]]:
    """(step, answer) by prompt, from some of the steps."""
    read = [steps[index] for index in evenly(len(steps), STEPS_READ)]
    return {record.prompt: (step, record.response) for step in read for record in reader.rollouts(step)}


def _pair(prompt: str, first: str, last: str, first_step: int, last_step: int) -> Iterator[NewItem]:
    if first != last and first.strip() and last.strip():
        yield NewItem(
            prompt,
            (first, last),
            (
                _("early in the run, step {first_step}").format(first_step=first_step),
                _("late in the run, step {last_step}").format(last_step=last_step),
            ),
        )
