"""A step that waits for people: its episodes go into a task of the run, and the engine answers commands until they are rated.

Everything goes through the store of feedback, so people may rate on the Feedback page, or through a program when no app runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, sleep, time

from rlhf_studio.config.reward_human import HumanReward
from rlhf_studio.engine.process.control import Control
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.errors import ComponentError, NotRated
from rlhf_studio.engine.stages.stage_run import StageRun
from rlhf_studio.language import S_
from rlhf_studio.runs import paths
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.feedback.records import WAITING_FOR_RATINGS, NewItem, NewTask, item_key
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.records import EventRecord
from rlhf_studio.runs.writer import RunWriter

POLL_SECONDS = 0.5
ALONE = "(no response)"  # the text that people see for an empty response, which the store would refuse


def ask_people(run: StageRun, run_dir: Path, writer: RunWriter, control: Control) -> None:
    """Connect the components that ask people with the run's store. A run without any is left as it is."""
    if run.people:
        desk = RatingDesk(run_dir, writer, control, lambda: run.step_number + 1, run.config.name)
        for component in run.people:
            component.ask = desk


class RatingDesk:
    """Asks people for the ratings of a step, and waits for them.

    Args:
        step: the number of the step that waits.
        name: the run's name.
    """

    def __init__(self, run_dir: Path, writer: RunWriter, control: Control, step: Callable[[], int], name: str):
        self._feedback = Feedback(paths.workspace_of(run_dir.resolve()) or run_dir.resolve())
        self._run, self._name = run_dir.resolve().name, name
        self._writer, self._control, self._step = writer, control, step

    def __call__(self, settings: HumanReward, field: str, episodes: Episodes) -> Sequence[Sequence[int]]:
        """The ratings of each episode. Raises StopRequested, :class:`NotRated`, and :class:`ComponentError`."""
        task_id = f"{self._run}-{field.rpartition('.')[2]}"
        step = self._step()
        new_items = [
            NewItem(prompt, (response if response.strip() else ALONE,), (f"{self._run}, step {step}",), step=step)
            for prompt, response in zip(episodes.prompts, episodes.responses, strict=True)
        ]
        try:
            task = self._feedback.ask(task_id, self._run, self._task(settings), new_items, time() + 60 * settings.time_limit)
        except ValueError as error:
            raise ComponentError(f"people cannot be asked: {error}") from error
        task_id, items = task.task, [task.items[item_key(item)] for item in new_items]
        used = False
        try:
            ratings = self._until_rated(task_id, settings, sorted(set(items)))
            used = True
        except NotRated:
            used = True
            raise
        finally:
            if not used:  # a stop, or a failure: the ratings given so far wait for the resume
                self._stop_asking(task_id, step)
        self._writer.set_state("running")
        return [ratings.get(item, []) for item in items]

    def _stop_asking(self, task_id: str, step: int) -> None:
        """Close the task: nobody rates for a run that does not work. The run stops even when this cannot be written."""
        try:
            self._feedback.stop_asking(task_id, step)
        except StoreError as error:
            self._writer.event(EventRecord("warning", "rating", f"The task of the ratings could not be closed: {error}"), step=step)

    def _task(self, settings: HumanReward) -> NewTask:
        name = f"{self._name or self._run}: rate the responses"[:200]
        return NewTask(name, "rating", settings.guidelines, annotators=settings.raters, points=settings.points, ask_confidence=False)

    def _until_rated(self, task_id: str, settings: HumanReward, items: list[int]) -> dict[int, list[int]]:
        """All ratings; after the time limit, those that there are."""
        step, waited, last_text = self._step(), 0.0, ""
        needed = len(items) * settings.raters
        while True:
            ratings = self._feedback.ratings(task_id, step, settings.raters)
            given = sum(len(ratings.get(item, ())) for item in items)
            if given == needed:
                taken = self._feedback.take_ratings(task_id, step, settings.raters, items, all_of_them=True)
                if taken is not None:  # else somebody took a rating back just now
                    return taken
            if waited >= 60 * settings.time_limit:
                return self._without(task_id, settings, items, needed - given)
            text = f"{WAITING_FOR_RATINGS}: {given} of {needed}"
            if text != last_text:
                self._writer.set_state("running", phase=text, fraction=given / needed)
                last_text = text
            before = monotonic()
            paused = self._control.while_rating()
            sleep(POLL_SECONDS)
            if paused:
                last_text = ""
                self._feedback.set_deadline(task_id, time() + max(0.0, 60 * settings.time_limit - waited))
            else:
                waited += monotonic() - before

    def _without(self, task_id: str, settings: HumanReward, items: list[int], missing: int) -> dict[int, list[int]]:
        """The time is over: do what the person chose."""
        what = S_(f"{missing} of {len(items) * settings.raters} ratings were missing after {settings.time_limit:g} minutes")
        if settings.fallback == "stop":
            self._control.give_up(S_(f"people did not rate in time: {what}"))
        taken = self._feedback.take_ratings(task_id, self._step(), settings.raters, items, all_of_them=False) or {}
        if settings.fallback == "skip":
            raise NotRated(what)
        text = S_(f"{what}: what nobody rated gets {settings.fallback_score:g}.")
        self._writer.event(EventRecord("warning", "rating", text, {"missing": missing}), step=self._step())
        return taken
