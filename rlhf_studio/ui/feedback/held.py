"""Which runs wait for people now. The task says what is asked; the run says whether an engine still waits for the answers."""

from __future__ import annotations

from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.feedback.records import Task
from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.records import ALIVE, RunStatus
from rlhf_studio.runs.workspace import Workspace


def works(run: RunStatus | None) -> bool:
    """Whether a run is there whose engine works, or pauses."""
    return run is not None and run.state in ALIVE


class Held:
    """Looks into the feedback of one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._feedback = workspace, Feedback(workspace.root)

    def by(self, status: RunStatus) -> str:
        """The name of the task that people must finish before a queued run can start; empty for none.

        Also empty when the store of feedback cannot be read: the Feedback page says what is wrong, and people can still follow runs.
        """
        if status.state != "queued":
            return ""
        try:
            waiting = self._feedback.waiting()
        except StoreError:
            return ""
        return next((task.settings.name for task in waiting if self.waits(task)), "")

    def waits(self, task: Task) -> bool:
        """Whether this task still waits for people. The task of a run does as long as the run works: a run that was killed has left its
        task open."""
        if not task.open or not task.run:
            return task.open
        try:
            return works(self._workspace.status(task.run))
        except StoreError:  # the run was deleted
            return False
