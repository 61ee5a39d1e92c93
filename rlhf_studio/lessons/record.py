"""A recorded run of PPO as the microscope reads it: the bundled run, or a run of a workspace, which is never changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

from rlhf_studio.lessons.kit.scene import CannotAsk
from rlhf_studio.lessons.run import LessonRun, lesson_run, tokens_of
from rlhf_studio.lessons.what_if import RecordedStep, recorded, with_critic
from rlhf_studio.runs.reader import RunReader

MOST_STEPS_KEPT, MOST_RUNS_KEPT, MOST_REMEMBERED = 40, 4, 1000
Result = TypeVar("Result")


@dataclass(frozen=True)
class Response:
    """A response as every run records it. ``prompt`` is None where its text was not recorded, ``gold`` where there is no gold score."""

    prompt: str | None
    ids: list[int]
    pieces: list[str]
    score: float
    gold: float | None
    stopped: bool


class RecordedRun:
    """A recorded run. Every method raises StoreError where the run cannot be read.

    Args:
        reader: of the run.
        models: the bundled run with its policies; None for all other runs, whose policies are not loaded.
    """

    def __init__(self, reader: RunReader, models: LessonRun | None = None):
        self.reader, self.models = reader, models
        self._recorded: OrderedDict[int, RecordedStep] = OrderedDict()
        self._responses: OrderedDict[int, list[Response]] = OrderedDict()
        self._known: OrderedDict[Any, Any] = OrderedDict()

    @cached_property
    def steps(self) -> list[int]:
        """The steps that have responses on record. Raises CannotAsk for a run without any, without a critic, or of another stage."""
        with_critic(self.reader.config())
        steps = self.reader.rollout_steps()
        if not steps:
            raise CannotAsk("This run has no responses on record yet. Come back when its first step is done.")
        return steps

    def recorded(self, step: int) -> RecordedStep:
        """The numbers of all episodes of a step, and its settings. Raises :class:`CannotAsk`."""
        if self.models is not None:
            return self.models.recorded(step)
        return _remembered(self._recorded, step, lambda: recorded(self.reader, step))

    def responses(self, step: int) -> list[Response]:
        """All responses of a step, in their order. Raises :class:`CannotAsk`."""
        return _remembered(self._responses, step, lambda: self._read(step))

    def remember(self, key: Any, ask: Callable[[], Result]) -> Result:
        """The result of ``ask``, remembered under ``key``; the oldest results are forgotten. For results that take long to compute."""
        result: Result = _remembered(self._known, key, ask, MOST_REMEMBERED)
        return result

    def _read(self, step: int) -> list[Response]:
        with self.reader.snapshot():
            episodes = self.reader.episodes(step).get(step)
            rollouts = {rollout.sample: rollout for rollout in self.reader.rollouts(step)}
        if episodes is None:
            raise CannotAsk(f"Step {step} has no record of all its responses. It is from an earlier version of this program.")
        responses = []
        for row, (ids, pieces) in enumerate(tokens_of(episodes)):
            prompt = rollouts[row].prompt if row in rollouts else None
            gold = None if episodes.gold is None else float(episodes.gold[row])
            responses.append(Response(prompt, ids, pieces, float(episodes.scores[row]), gold, bool(episodes.stopped[row])))
        return responses


@cache
def bundled_record() -> RecordedRun:
    """The record of the bundled run. Raises :class:`~rlhf_studio.runs.finding.unpack.DamagedBundle`."""
    run = lesson_run()
    return RecordedRun(run.reader, run)


_OPENED: OrderedDict[Path, tuple[str, RecordedRun]] = OrderedDict()


def opened(folder: Path, as_of: str) -> RecordedRun:
    """The record of a run of a workspace. ``as_of`` changes whenever the run does: then it is read anew."""
    if folder not in _OPENED or _OPENED[folder][0] != as_of:
        _OPENED[folder] = (as_of, RecordedRun(RunReader(folder)))
    _OPENED.move_to_end(folder)
    while len(_OPENED) > MOST_RUNS_KEPT:
        _OPENED.popitem(last=False)
    return _OPENED[folder][1]


def _remembered(memory: OrderedDict[Any, Result], key: Any, read: Callable[[], Result], most: int = MOST_STEPS_KEPT) -> Result:
    if key not in memory:
        memory[key] = read()
    memory.move_to_end(key)
    while len(memory) > most:
        memory.popitem(last=False)
    return memory[key]
