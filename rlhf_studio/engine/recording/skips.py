"""Updates and answers that are left out because a number is not finite or a reward failed; and how often that may happen."""

from __future__ import annotations

from rlhf_studio.engine.rewards.errors import RewardError, StepSkipped
from rlhf_studio.engine.types import NonFiniteError
from rlhf_studio.language import S_
from rlhf_studio.runs.records import EventRecord

MOST_SKIPS = 10  # in a run


class Skips:
    """Counts what was left out.

    Attributes:
        count: how many in the run so far; belongs into a checkpoint.
        stop: raise the first error instead (``engine.non_finite: stop``).
    """

    def __init__(self, stop: bool, count: int = 0):
        self.stop, self.count = stop, count

    def add(self, error: NonFiniteError | RewardError) -> None:
        """Count one, unless its person chose to skip it. Raises ``error`` when the run is to stop at such errors, or at too many."""
        if isinstance(error, StepSkipped):
            return
        if self.stop:
            raise error
        if self.count == MOST_SKIPS:
            raise type(error)(S_(f"{error}; {MOST_SKIPS} such failures were skipped before, which is the most in a run")) from error
        self.count += 1

    def add_update(self, problems: list[str]) -> None:
        """Count an update once, however many of its minibatches had a number that is not finite. Raises :class:`NonFiniteError`."""
        if problem := next((problem for problem in problems if "not finite" in problem), None):
            self.add(NonFiniteError(problem))


def skip_event(what: str, problem: object, minibatches: int = 0) -> EventRecord:
    """``what`` was left out because of ``problem``, for people; ``minibatches``: how many, for the rule of stability."""
    return EventRecord("warning", "skip", f"{what} left out: {problem}.", {"minibatches": minibatches} if minibatches else {})
