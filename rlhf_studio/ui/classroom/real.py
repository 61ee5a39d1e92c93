"""What answers a round in the end: a run's curve, or which option the two runs of an experiment make the right one."""

from __future__ import annotations

import math
from typing import Any

from rlhf_studio.lessons.faults import shelf
from rlhf_studio.lessons.faults.pair import Pair
from rlhf_studio.lessons.faults.runs import both_runs, has_ended, own_runs
from rlhf_studio.runs.classroom.records import Round, RoundQuestion
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.records import ENDED, RunStatus
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.classroom.ready import option_of

MOST_RUNS = 50  # that a teacher can choose from
MOST_POINTS = 400  # of a real curve that are sent
Json = dict[str, Any]


class Answering:
    """Looks for the runs of one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def runs(self) -> list[Json]:
        """Runs that can answer a question, the newest first."""
        found = [run for run in self._workspace.runs() if run.step > 0]
        return [{"run": run.run_id, "name": run.name or run.run_id, "steps": run.total_steps} for run in found[:MOST_RUNS]]

    def look(self, one: Round) -> Json:
        """How the answer to a round stands.

        ``run``, with its ``name``, ``state``, ``step`` and ``steps``, is the one whose curve answers, empty for none; ``startable`` says
        that the runs of an experiment are not there yet. What has been found is ``steps`` and ``values`` of the curve, or ``right``.
        """
        run = self._run(one)
        found: Json = {"run": "", "startable": False, "ended": True}
        if run is not None:
            found |= {"run": run.run_id, "name": run.name or run.run_id, "state": run.state, "step": run.step, "steps": run.total_steps}
            found["ended"] = run.state in ENDED
        if one.question.experiment and not one.run:
            return found | self._of_experiment(one.question)
        if run is not None and one.question.kind == "curve":
            found |= {"curve": self._curve(run.run_id, one.question.metric)}
        return found

    def _run(self, one: Round) -> RunStatus | None:
        try:
            if one.run:
                return self._workspace.status(one.run)
            if one.question.experiment:
                return self._pair(one.question)["second"]
        except StoreError:  # it was deleted
            return None
        return None

    def _pair(self, question: RoundQuestion) -> dict[Any, RunStatus | None]:
        experiment = shelf.experiment_of(question.experiment)
        return both_runs(self._workspace, experiment, question.seed, own_runs(self._workspace))

    def _of_experiment(self, question: RoundQuestion) -> Json:
        pair = self._pair(question)
        both = all(map(has_ended, pair.values()))
        second = pair["second"]
        found: Json = {"startable": not both and all(run is None or has_ended(run) for run in pair.values()), "ended": both}
        if question.kind == "curve":
            return found | ({"curve": self._curve(second.run_id, question.metric)} if second is not None else {})
        if not both:
            return found
        readers = {which: self._workspace.reader(run.run_id) for which, run in pair.items() if run is not None}
        answer = str(Pair(shelf.experiment_of(question.experiment), readers["first"], readers["second"]).numbers()["answer"])
        said = option_of(question.experiment, answer)
        return found | ({"right": question.options.index(said)} if said in question.options else {})

    def _curve(self, run_id: str, metric: str) -> Json:
        steps, columns = self._workspace.reader(run_id).columns([metric])
        pairs = [(int(step), float(value)) for step, value in zip(steps, columns[metric], strict=True) if math.isfinite(value)]
        kept = pairs[:: max(1, math.ceil(len(pairs) / MOST_POINTS))]
        return {"steps": [step for step, _ in kept], "values": [round(value, 6) for _, value in kept]}
