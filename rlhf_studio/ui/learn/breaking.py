""" "Break it" on the Learn page: pairs of runs from one seed, one of them with a fault, and where the fault shows.

The runs are ordinary runs of the workspace: queued, trained and recorded like all others. ``assets/learn/breaking.js`` draws this part.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr
from starlette.responses import Response

from rlhf_studio.analysis.logs.shareable import without_secrets
from rlhf_studio.config import RunConfig
from rlhf_studio.config.bundled import RECORDINGS
from rlhf_studio.config.recipes import list_recipes, load_recipe
from rlhf_studio.language import N_, _, language, told
from rlhf_studio.lessons.faults import shelf
from rlhf_studio.lessons.faults.experiment import MOST_SEED, RECIPE, Experiment, Which
from rlhf_studio.lessons.faults.runs import BothRuns, both_runs, has_ended, own_runs, seeds_done, submit_missing, under_way
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.records import RunStatus
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.forecast import estimate
from rlhf_studio.ui.once import Once, nonce_of
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.sent import as_json, language_of, member
from rlhf_studio.ui.serving.bounded import Bounded, TooBusy
from rlhf_studio.units import duration

logger = logging.getLogger(__name__)
BUSY = N_("A pair is under way. One pair runs at a time: wait for its end, or stop it on Live.")
MOST_KEPT = 40  # results
RECORDED = {"no_kl": "recording-exploits", "learning_rate": "recording-collapses"}  # experiment -> the recording of the same fault
Json = dict[str, Any]


class Breaking:
    """What "Break it" can ask and do.

    Args:
        workspace: holds the runs.
        access: who may start runs.
        wake: tells the queue that there is something to start.
    """

    def __init__(self, workspace: Workspace, access: Access, wake: Callable[[], None] = lambda: None) -> None:
        self._workspace, self._access, self._wake = workspace, access, wake
        self._once = Once(lambda outcome: "seed" in outcome)
        self._starting, self._memory = threading.Lock(), threading.Lock()
        self._results: dict[str, Json] = {}
        self._times: dict[tuple[Any, ...], str] = {}
        self._few = Bounded("break", 2, 20)

    def functions(self) -> list[Callable[..., Any]]:
        """What the page may call."""

        @callable_by(Role.VIEWER)
        async def break_news(data: Any, request: gr.Request) -> Response:
            try:
                return as_json(await self._few.run(lambda: self.break_news(data, request)))
            except TooBusy as error:
                return as_json({"error": told(error)})

        return [self.break_shelf, break_news, self.break_start]

    @callable_by(Role.VIEWER)
    def break_shelf(self, data: Any, request: gr.Request) -> Json:
        """All experiments in order, with their texts."""
        language = language_of(data)
        texts = {entry["name"]: shelf.text_of(entry["name"], language).as_data() for entry in shelf.entries(language)}
        return {"experiments": shelf.entries(language), "texts": texts}

    def break_news(self, data: Any, request: gr.Request) -> Json:
        """How the runs of the experiment ``show`` stand for ``seed``; without a seed, for the newest pair that there is.

        ``seeds`` are those of which both runs have ended. ``result`` is what the text shows of the two runs, once both have ended;
        the page names the result that it has (``known``), and is not sent it again. ``error`` where there is no such experiment.
        """
        try:
            experiment, seed = shelf.experiment_of(str(member(data, "show"))), _seed(data)
        except (shelf.NoExperiment, ValueError) as error:
            return {"error": told(error)}
        runs = own_runs(self._workspace)
        seeds = seeds_done(self._workspace, experiment, runs)
        seed = seed if seed is not None else seeds[-1] if seeds else 0
        pair = both_runs(self._workspace, experiment, seed, runs)
        news: Json = {
            "show": experiment.name,
            "seed": seed,
            "seeds": seeds,
            "next_seed": next(candidate for candidate in range(MOST_SEED + 1) if candidate not in seeds),
            "runs": {which: _side(experiment, which, seed, run) for which, run in pair.items()},
            "under_way": under_way(self._workspace, runs),
            "recorded": _recorded(experiment),
            **self._access.rights(request, data),
            "takes": self._takes(experiment, seed, pair),
        }
        if not all(map(has_ended, pair.values())):
            return news
        key = " ".join([experiment.name, language_of(data), *(f"{run.run_id}.{run.seq}" for run in pair.values() if run is not None)])
        return {**news, "key": key, **({} if member(data, "known") == key else self._result(key, experiment, pair, data))}

    @callable_by(Role.OPERATOR)
    def break_start(self, data: Any, request: gr.Request) -> Json:
        """Queue those runs of a pair that do not exist yet. Gives ``seed``, or ``problem`` with nothing queued.

        Raises :class:`gradio.Error` for viewers.
        """
        self._access.require_operator(request, data)
        return {**self._once.answer(data, lambda: self._start(data)), "nonce": nonce_of(data)}

    def _takes(self, experiment: Experiment, seed: int, pair: BothRuns) -> str:
        """How long the runs take that have not ended, as a sentence. It uses earlier runs of this workspace, else the recipe's time."""
        configs = [experiment.config(which, seed) for which, run in pair.items() if not has_ended(run)]
        if not configs:
            return ""
        with self._memory:
            key = (
                language(),
                experiment.name,
                len(configs),
                tuple(run.run_id for run in pair.values() if has_ended(run) and run is not None),
            )
            if key not in self._times:
                self._times[key] = how_long(self._workspace, configs)
            return self._times[key]

    # --- helpers -----------------------------------------------------------------------------------------------------------

    def _start(self, data: Any) -> Json:
        try:
            experiment, seed = shelf.experiment_of(str(member(data, "show"))), _seed(data) or 0
        except (shelf.NoExperiment, ValueError) as error:
            return {"problem": told(error)}
        with self._starting:
            runs = own_runs(self._workspace)
            if under_way(self._workspace, runs):
                return {"problem": _(BUSY)}
            try:
                submit_missing(self._workspace, experiment, seed, runs)
            except (StoreError, OSError) as error:
                logger.exception("a run could not be created")
                return {"problem": _("The runs could not be created: {error}").format(error=told(error))}
        self._wake()
        return {"seed": seed}

    def _result(self, key: str, experiment: Experiment, pair: BothRuns, data: Any) -> Json:
        with self._memory:
            if key in self._results:
                return self._results[key]
        try:
            readers = {which: self._workspace.reader(run.run_id) for which, run in pair.items() if run is not None}
            computed: Json = {"result": shelf.result(experiment, readers, language_of(data))}
        except (StoreError, ValueError) as error:
            return {"problem": _("The two runs cannot be compared: {error}").format(error=told(error))}
        with self._memory:
            self._results[key] = computed
            while len(self._results) > MOST_KEPT:
                self._results.pop(next(iter(self._results)))
        return computed


def _recorded(experiment: Experiment) -> Json | None:
    """The recording that shows the same fault, for people who cannot start the runs; None when there is none."""
    run_id = RECORDED.get(experiment.name)
    return next(({"run": recording.run_id, "name": told(recording.name)} for recording in RECORDINGS if recording.run_id == run_id), None)


def how_long(workspace: Workspace, configs: Sequence[RunConfig]) -> str:
    """How long these runs of the recipe take, one after the other, as a sentence; empty where nobody can tell."""
    recipe, recipes = load_recipe(RECIPE), {listed.name: listed for listed in list_recipes()}
    each = [estimate(config, workspace.root, recipes, recipe, earlier=False) for config in configs]
    known = [one for one in each if one is not None]
    if not known or len(known) < len(configs):
        return ""
    if known[0].source == "recipe":
        both_take = _("Both runs together take about {time} on two CPU cores that do nothing else.")
        one_takes = _("The missing run takes about {time} on two CPU cores that do nothing else.")
    else:
        both_take = _("Both runs together take about {time}, going by the newest run on this machine.")
        one_takes = _("The missing run takes about {time}, going by the newest run on this machine.")
    return (both_take if len(configs) > 1 else one_takes).format(time=duration(sum(one.high for one in known)))


def _side(experiment: Experiment, which: Which, seed: int, run: RunStatus | None) -> Json:
    side = experiment.side(which)
    facts: Json = {"called": side.called, "fault": side.fault, "name": experiment.run_name(which, seed)}
    if run is None:
        return {**facts, "run": "", "state": "", "step": 0, "steps": experiment.config(which, seed).ppo.steps, "cause": ""}
    return {
        **facts,
        "run": run.run_id,
        "state": run.state,
        "step": run.step,
        "steps": run.total_steps,
        "cause": told(without_secrets(run.cause)),
        "phase": told(run.phase),
    }


def _seed(data: Any) -> int | None:
    """The seed that was sent; None for none. Raises ValueError for what is no seed."""
    seed = member(data, "seed")
    if seed is None:
        return None
    if type(seed) is not int or not 0 <= seed <= MOST_SEED:
        raise ValueError(f"seed must be a whole number from 0 to {MOST_SEED}")
    return seed
