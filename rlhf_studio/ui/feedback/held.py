"""What a run in the queue waits for, when the run before it waits for people."""

from __future__ import annotations

from rlhf_studio.runs.feedback.store import Feedback
from rlhf_studio.runs.records import RunStatus
from rlhf_studio.runs.workspace import Workspace


class Held:
    """Looks into the feedback of one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._feedback = Feedback(workspace.root)

    def by(self, status: RunStatus) -> str:
        """The name of the task that people must finish before a queued run can start; empty for none. Raises StoreError."""
        return next((task.settings.name for task in self._feedback.waiting()), "") if status.state == "queued" else ""
