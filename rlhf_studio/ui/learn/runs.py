"""The runs of a workspace that a lesson can look at: a list of them, and the folder of each one for the process that computes.

The browser names a run by its id and never by a path.
"""

from __future__ import annotations

from typing import Any

from rlhf_studio.runs.errors import StoreError, store_error
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ALIVE, RunStatus
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.remembered import OfRuns

MOST_LISTED = 100
LONGEST_ID = 100
Json = dict[str, Any]


class RunsOnRecord:
    """The runs of PPO that have their episodes on record. ``workspace`` None: there are none."""

    def __init__(self, workspace: Workspace | None) -> None:
        self._workspace = workspace
        self._with_episodes = OfRuns(self._has_episodes)

    def listed(self) -> list[Json]:
        """The newest of them, each with ``run`` (its id), ``name``, ``steps`` (done so far) and whether it still trains (``alive``)."""
        if self._workspace is None:
            return []
        recordings, _ = self._workspace.recordings.runs()
        candidates = (status for status in [*self._workspace.runs(), *recordings] if status.stage == "ppo" and status.step > 0)
        rows = (
            {"run": status.run_id, "name": status.name, "steps": status.step, "alive": status.state in ALIVE}
            for status in candidates
            if self._with_episodes.of(status)
        )
        return [row for row, _ in zip(rows, range(MOST_LISTED), strict=False)]

    def _has_episodes(self, status: RunStatus) -> bool:
        assert self._workspace is not None  # the workspace has listed the run
        try:
            return bool(self._workspace.reader(status.run_id).episode_arrays(status.step, ["lengths"]))
        except StoreError:
            return False  # damaged, or deleted just now: there is nothing to look at

    def of_question(self, run: Any) -> Json:
        """The members that name a run in a question to the process: its ``folder``, and ``as_of``, which changes whenever the run does.

        Empty when no run is given: the lesson then uses the bundled one. Raises StoreError when there is no such run, and ValueError for
        something that is no name.
        """
        if run is None or run == "":
            return {}
        if not isinstance(run, str) or len(run) > LONGEST_ID:
            raise ValueError("run must be the id of a run")
        if self._workspace is None:
            raise StoreError("This app has no workspace with runs.", "missing")
        folder = self._workspace.run_dir(run)
        reader = RunReader(folder)
        _, written = reader.stored()
        try:
            file = reader.path.stat().st_ino  # another run of the same name has another file
        except OSError as error:
            raise store_error(error, reader.path) from error
        return {"folder": str(folder), "as_of": f"{written} {file}"}
