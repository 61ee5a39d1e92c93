"""What answers a round at its end: the curve of a run, or the option that the two runs of an experiment show to be right."""

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
        begun = [run for run in self._workspace.runs() if run.step > 0]
        return [{"run": run.run_id, "name": run.name or run.run_id, "steps": run.total_steps} for run in begun[:MOST_RUNS]]

    def look(self, round_: Round) -> Json:
        """How far the answer to a round is.

        Returns ``run`` (the id of the run whose curve answers, empty for none) with its ``name``, ``state``, ``step`` and ``steps``;
        ``startable``, whether the runs of an experiment can be started now; ``ended``; and, as far as it is known, the answer: ``curve``
        with ``steps`` and ``values``, or ``right``, the number of the right option.
        """
        run = self._run(round_)
        answer: Json = {"run": "", "startable": False, "ended": True}
        if run is not None:
            answer |= {"run": run.run_id, "name": run.name or run.run_id, "state": run.state, "step": run.step, "steps": run.total_steps}
            answer["ended"] = run.state in ENDED
        if round_.question.experiment and not round_.run:
            return answer | self._of_experiment(round_.question)
        if run is not None and round_.question.kind == "curve":
            answer |= {"curve": self._curve(run.run_id, round_.question.metric)}
        return answer

    def _run(self, round_: Round) -> RunStatus | None:
        try:
            if round_.run:
                return self._workspace.status(round_.run)
            if round_.question.experiment:
                return self._pair(round_.question)["second"]
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
        facts: Json = {"startable": not both and all(run is None or has_ended(run) for run in pair.values()), "ended": both}
        if question.kind == "curve":
            return facts | ({"curve": self._curve(second.run_id, question.metric)} if second is not None else {})
        if not both:
            return facts
        readers = {which: self._workspace.reader(run.run_id) for which, run in pair.items() if run is not None}
        answer = str(Pair(shelf.experiment_of(question.experiment), readers["first"], readers["second"]).numbers()["answer"])
        option = option_of(question.experiment, answer)
        return facts | ({"right": question.options.index(option)} if option in question.options else {})

    def _curve(self, run_id: str, metric: str) -> Json:
        steps, columns = self._workspace.reader(run_id).columns([metric])
        pairs = [(int(step), float(value)) for step, value in zip(steps, columns[metric], strict=True) if math.isfinite(value)]
        thinned = pairs[:: max(1, math.ceil(len(pairs) / MOST_POINTS))]
        return {"steps": [step for step, _ in thinned], "values": [round(value, 6) for _, value in thinned]}
