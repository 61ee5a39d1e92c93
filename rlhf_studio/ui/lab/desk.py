"""All that the Runs page and the end of the Live page have of the lab: made once for an app, closed with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlhf_studio.inputs.preflight import Preflight, inspect_run
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.insights import Insights
from rlhf_studio.ui.lab.comparing import Comparing
from rlhf_studio.ui.lab.experiments import Experiments
from rlhf_studio.ui.lab.opening import Opening


class Desk:
    """The lab of one app. Arguments as :class:`~rlhf_studio.ui.lab.experiments.Experiments` takes them."""

    def __init__(
        self,
        workspace: Workspace,
        access: Access,
        insights: Insights,
        inspect: Callable[..., Preflight] = inspect_run,
        queued: Callable[[], None] = lambda: None,
    ) -> None:
        self.comparing = Comparing(workspace)
        self.experiments = Experiments(workspace, access, insights, inspect, queued)
        self.opening = Opening(workspace, access)

    def ending_functions(self) -> list[Callable[..., Any]]:
        """What the end of a run on the Live page may ask."""
        return [self.experiments.experiment_ideas, self.experiments.experiment_form, self.experiments.experiment_start]

    def functions(self) -> list[Callable[..., Any]]:
        """What the Runs page may ask, beside its own functions."""
        compared = [self.comparing.compare, self.comparing.curves, self.comparing.answers, self.comparing.sweep]
        return [*self.ending_functions(), *compared, self.opening.open_log]

    def close(self) -> None:
        """Stop all threads, with the app."""
        for part in (self.comparing, self.experiments, self.opening):
            part.close()
