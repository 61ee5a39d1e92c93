"""The functions for programs that change nothing.

Gradio makes each one's schema from its hints and docstring, which must be no strings: no ``from __future__ import annotations`` here.
"""

import asyncio
import json
import time
from concurrent.futures import Future
from typing import Any

import gradio as gr

from rlhf_studio.config.metrics.stages import SUMMARIES
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ENDED
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.api import answers
from rlhf_studio.ui.api.asked import form_of, run_named
from rlhf_studio.ui.api.calling import Calls, for_programs
from rlhf_studio.ui.insights import Progress
from rlhf_studio.ui.lab.experiments import Experiments
from rlhf_studio.ui.live.feed import LiveFeed
from rlhf_studio.ui.live.payloads import Series
from rlhf_studio.ui.live.snapshot import Position
from rlhf_studio.ui.roles import Role
from rlhf_studio.ui.runs_page import RunsPage
from rlhf_studio.ui.train_page import TrainPage

MOST_POINTS, MOST_RUNS, MOST_NAMES = 2_000, 500, 60
LONGEST_WAIT = 600.0  # seconds
LOOK_SECONDS = 0.25  # between two looks of a program that waits
ANALYSIS_SECONDS = 60.0  # for a diagnosis; a run's first one is the longest
READ_SECONDS = 30.0
Json = dict[str, Any]


class Watching:
    """Functions for viewers. They ask the pages' own functions, and read what these read."""

    def __init__(
        self, calls: Calls, workspace: Workspace, feed: LiveFeed, train_page: TrainPage, runs_page: RunsPage, experiments: Experiments
    ) -> None:
        self.calls = calls
        self._workspace, self._feed = workspace, feed
        self._train_page, self._runs_page, self._experiments = train_page, runs_page, experiments

    @for_programs(Role.VIEWER)
    def list_recipes(self, request: gr.Request, recipe: str = "") -> Json:
        """What can be trained: the recipes, or with a name all settings of that recipe. Every run begins with a recipe.

        Args:
            recipe: A recipe's name, such as world. Then each setting is given by its dotted name, with value, meaning and bounds.
        """
        if recipe:
            return answers.recipe_settings(load_recipe(recipe))
        return {"recipes": [answers.recipe_row(card) for card in self._train_page.boot({}, request)["recipes"]]}

    @for_programs(Role.VIEWER)
    def check_settings(self, request: gr.Request, recipe: str, settings: str = "{}") -> Json:
        """What a run would do before it is started: problems, risks, time, memory and disk. Starts nothing. Do this before start_training.

        An answer without problems can be started. Viewers get no look at files of the machine, so no memory and disk.

        Args:
            recipe: A recipe's name, such as world; list_recipes gives them.
            settings: Text of a JSON object with the settings to change, by dotted name: {"ppo.steps": 20, "ppo.kl_coef": 0.1}.
        """
        _, form = form_of(recipe, settings)
        looked = self._train_page.check(form, request)
        shown = ("problems", "notes", "risks", "sentence", "watch", "figures", "memory", "command", "waiting", "fitted")
        return {"can_start": not looked["problems"], **{name: looked[name] for name in shown if name in looked}}

    @for_programs(Role.VIEWER)
    async def list_runs(self, request: gr.Request, limit: int = 50) -> Json:
        """All runs, the newest first, with state, step, scores and what the doctor says. Recordings that came with the app are last.

        Args:
            limit: The most runs to give, such as 10.
        """
        table = await self._runs_page.runs({}, request)
        if "rows" not in table:
            raise StoreError(table["problem"], "state")
        of = {row["id"]: answers.listed(row) for row in table["rows"]}
        return {"runs": [of[run] for run in table["ids"]][: min(max(limit, 0), MOST_RUNS)], "all": len(of), "problem": table["problem"]}

    @for_programs(Role.VIEWER)
    def run_status(self, request: gr.Request, run: str) -> Json:
        """How one run is now: state, phase, step of how many, seconds left, its checkpoints, and why it failed if it did.

        Args:
            run: The run's id, such as recording-improves; start_training and list_runs give them.
        """
        return self._status(run_named(run))

    @for_programs(Role.VIEWER, waits=True)
    async def wait_for_run(self, request: gr.Request, run: str, seconds: float = 50.0) -> Json:
        """Waits until a run has ended, or for so many seconds. Gives what run_status gives: call it again while ended is false.

        Args:
            run: The run's id, such as recording-improves; start_training and list_runs give them.
            seconds: The longest time to wait, such as 50, at most 600. Many MCP clients give up after 60 seconds.
        """
        name, until = run_named(run), time.monotonic() + min(max(seconds, 0.0), LONGEST_WAIT)
        status = await asyncio.to_thread(self._status, name)
        while not status["ended"] and time.monotonic() < until:
            self._feed.poll(Position(run=name))  # the feed's one thread reads the run for everybody
            reached = self._feed.progress(name)
            if reached is not None and reached.ended:
                status = await asyncio.to_thread(self._status, name)
                if status["ended"]:  # the feed may not know yet that it goes on again
                    break
            await asyncio.sleep(min(LOOK_SECONDS, max(0.0, until - time.monotonic())))
        return status if status["ended"] else await asyncio.to_thread(self._status, name)

    @for_programs(Role.VIEWER)
    def run_metrics(self, request: gr.Request, run: str, names: str = "", points: int = 200) -> Json:
        """The curves of a run: metrics with their meaning, by step. Without names, those that sum a run up; all names are in the answer.

        Args:
            run: The run's id, such as recording-improves; start_training and list_runs give them.
            names: Names with commas, such as objective/scores,objective/kl,policy/clipfrac_avg.
            points: The most values of each metric, such as 50; a longer curve is thinned, and keeps its peaks.
        """
        reader = self._workspace.reader(run_named(run))
        known = reader.metric_names()
        wanted = [name.strip() for name in names.split(",") if name.strip()] or [
            name for name in known if name in SUMMARIES[reader.config().stage]
        ]
        if missing := [name for name in wanted if name not in known]:
            raise ValueError(f"This run has no metric {missing[0][:80]!r}. It has: {', '.join(known) or 'none yet'}.")
        if len(wanted) > MOST_NAMES:
            raise ValueError(f"Ask for {MOST_NAMES} metrics at most.")
        series = _series(reader)
        metrics = answers.metrics_of(series, wanted, min(max(points, 2), MOST_POINTS), reader.origin().unit)
        return {"step": series.last_step, "metrics": metrics, "names": known}

    @for_programs(Role.VIEWER)
    async def run_samples(self, request: gr.Request, run: str, step: int = 0, sample: int = -1) -> Json:
        """Responses of a step with scores, or with a sample's number one response with every number of its tokens.

        Of each token: log-probability when sampled, of the reference and after the update, KL, reward, value, advantage and more.

        Args:
            run: The run's id, such as recording-improves; start_training and list_runs give them.
            step: Which step, such as 12; 0 for the newest with recorded responses.
            sample: Which response, such as 0, the first; -1 for the table of all of them without tokens.
        """
        name = run_named(run)
        steps = await asyncio.to_thread(lambda: self._workspace.reader(name).rollout_steps())
        at = step or (steps[-1] if steps else 0)
        if at not in steps:
            recorded = f"It has responses of steps {steps[0]} to {steps[-1]}." if steps else "It has none yet."
            raise StoreError(f"This run has no recorded responses of step {at}. {recorded}", "missing")
        if sample < 0:
            return {**answers.samples_of(await self._detail(name, "samples", at, -1)), "steps": steps[-MOST_POINTS:]}
        return answers.tokens_of(await self._detail(name, "tokens", at, sample))

    @for_programs(Role.VIEWER)
    async def run_diagnosis(self, request: gr.Request, run: str) -> Json:
        """The doctor's verdict on a run, its findings with evidence and advice, and what to try next.

        A finding's fork, and each of next, hold what fork_run takes. A verdict of kind "exploiting the reward" or "collapsed" is bad news.

        Args:
            run: The run's id, such as recording-improves; start_training and list_runs give them.
        """
        name = run_named(run)
        status = await asyncio.to_thread(self._workspace.status, name)
        asked = self._feed.insights.detail(name, "diagnosis", Progress(status.epoch, status.step, status.state))
        diagnosis = await _plain(asked, ANALYSIS_SECONDS)
        saved = await asyncio.to_thread(lambda: [point.step for point in self._workspace.reader(name).checkpoints()])
        ideas = await self._experiments.experiment_ideas({"run": name}, request) if status.state in ENDED and not status.recording else {}
        return {
            "step": diagnosis["step"],
            "ended": status.state in ENDED,
            "verdict": diagnosis["verdict"],
            "findings": [answers.advised(finding, saved, not status.origin.only_read) for finding in diagnosis["findings"]],
            "next": [{"title": idea["title"], "why": idea["why"], "how": idea["how"], "settings": idea["changes"]}
                     for idea in ideas.get("ideas", []) if idea["how"] != "sweep"],
        }  # fmt: skip

    def _status(self, run: str) -> Json:
        status = self._workspace.status(run)
        return answers.status_of(status, None if status.unreadable else self._workspace.reader(run))

    async def _detail(self, run: str, kind: str, step: int, sample: int) -> Json:
        return await _plain(self._feed.detail(run, kind, step, sample), READ_SECONDS)


async def _plain(reading: Future[bytes], seconds: float) -> Json:
    """What a thread of the pages answers. Raises StoreError for a problem, and when it takes longer."""
    answer = asyncio.wrap_future(reading)
    await asyncio.wait([answer], timeout=seconds)
    if not answer.done():
        raise StoreError("This takes longer than usual. Ask again in a moment.", "state")
    given: Json = json.loads(answer.result())
    if "problem" in given:
        raise StoreError(given["problem"], "state")
    return given


def _series(reader: RunReader) -> Series:
    """All metrics of a run."""
    series = Series()
    while rows := reader.metrics_since(series.last_step):
        series.append(rows)
    return series
