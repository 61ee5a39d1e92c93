"""The functions for programs that start, stop and score.

Gradio makes each one's schema from its hints and docstring, which must be no strings: no ``from __future__ import annotations`` here.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import gradio as gr

from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.api import answers
from rlhf_studio.ui.api.asked import form_of, nonce_in, run_named, settings_in
from rlhf_studio.ui.api.calling import Calls, for_programs
from rlhf_studio.ui.form import settings_of
from rlhf_studio.ui.lab.experiments import Experiments
from rlhf_studio.ui.roles import PLAYED, Role
from rlhf_studio.ui.runs_page import RunsPage
from rlhf_studio.ui.scoring.try_it import TryReward
from rlhf_studio.ui.train_page import TrainPage

SCORE_SECONDS = 300.0
LOOK_SECONDS = 0.1
Json = dict[str, Any]


class Acting:
    """Functions for operators; starting and stopping also for visitors and students, within their limits.

    Args:
        wake: tells the dispatcher that the queue has changed.
    """

    def __init__(
        self,
        calls: Calls,
        workspace: Workspace,
        train_page: TrainPage,
        runs_page: RunsPage,
        experiments: Experiments,
        try_reward: TryReward,
        wake: Callable[[], None],
    ) -> None:
        self.calls = calls
        self._workspace, self._train_page, self._runs_page = workspace, train_page, runs_page
        self._experiments, self._try_reward, self._wake = experiments, try_reward, wake

    @for_programs(Role.OPERATOR, players_in=PLAYED, starts=True)
    def start_training(self, request: gr.Request, recipe: str, settings: str = "{}", name: str = "", request_id: str = "") -> Json:
        """Starts a run, or puts it in the queue behind others. Gives the run's id. Settings that are wrong start nothing and are an error.

        Args:
            recipe: A recipe's name, such as world; list_recipes gives them.
            settings: Text of a JSON object with the settings to change, by dotted name: {"ppo.steps": 20}. Check them with check_settings.
            name: What people call the run, such as without KL.
            request_id: Any text of your own, such as try-1. Asked again with the same one, it starts nothing more and gives the same run.
        """
        known, form = form_of(recipe, settings)
        if known.asks:  # what nobody has chosen is fitted to the model and the data, as the page does it
            looked = self._train_page.check(form, request)
            fitted = {setting: value["value"] for setting, value in looked.get("fitted", {}).items()}
            form["values"] = {**form["values"], **fitted, **settings_in(settings)}
        if name:
            form["values"]["name"] = name
        wish = {"recipe": recipe, "settings": settings_in(settings), "name": name}
        outcome = self._train_page.start({**form, "nonce": nonce_in(request_id), "wish": wish}, request)
        if "run_id" not in outcome:
            raise ValueError(answers.refusal_of(outcome["problems"]))
        self._wake()
        return {"run": outcome["run_id"]}

    @for_programs(Role.OPERATOR)
    async def fork_run(
        self, request: gr.Request, run: str, settings: str = "{}", step: int = -1, how: str = "", name: str = "", request_id: str = ""
    ) -> Json:
        """Starts a new run that follows from another one with changed settings, as a finding's fork or next of run_diagnosis advise.

        Gives the new run's id; its parent is the old run, which stays as it is.

        Args:
            run: The id of the run to follow, from list_runs.
            settings: Text of a JSON object with the settings to change, by dotted name: {"ppo.kl_coef": 0.1}.
            step: The checkpoint to go on from, such as 20 (run_status lists them); -1 to begin again with the untrained model.
            how: Leave it empty, or "more steps" to let the same run go on to the number of steps in settings: {"ppo.steps": 80}.
            name: What people call the new run, such as with more KL.
            request_id: Any text of your own, such as try-2, as for start_training.
        """
        if how not in ("", "fork", "variation", "more steps"):
            raise ValueError('how must be empty, "fork", "variation" or "more steps".')
        way = how or ("fork" if step >= 0 else "variation")
        asked: Json = {"run": run_named(run), "how": way, "changes": settings_in(settings), "name": name, "nonce": nonce_in(request_id)}
        asked["step"] = step if way == "fork" else None
        outcome = await self._experiments.experiment_start({**asked, "wish": asked}, request)
        if "runs" not in outcome:
            raise ValueError(answers.refusal_of(outcome["problems"]) if "problems" in outcome else outcome["problem"])
        return {"run": outcome["runs"][0], "name": outcome["names"][0]}

    @for_programs(Role.OPERATOR, players_in=PLAYED)
    def stop_training(self, request: gr.Request, run: str) -> Json:
        """Asks a run to stop after its present step, with a checkpoint to go on from; a run in the queue is taken out of it.

        Args:
            run: The run's id, from list_runs. Whether it has stopped is told by wait_for_run.
        """
        named = run_named(run)
        self._runs_page.stop({"run": named}, request)
        self._wake()
        return {"run": named, "asked": "stop"}

    @for_programs(Role.OPERATOR)
    async def score_text(
        self, request: gr.Request, prompt: str, response: str, recipe: str = "world", run: str = "", settings: str = "{}"
    ) -> Json:
        """Scores one response with the rewards of a recipe or of a run: the total, and what each reward component gave.

        Args:
            prompt: What the model is given, such as: The film was
            response: What it answers, such as: a masterpiece.
            recipe: Whose rewards score, such as world; not looked at where a run is named.
            run: The id of a run whose rewards score, from list_runs; empty for those of the recipe.
            settings: Text of a JSON object with settings to change, such as {"reward.components": [{"kind": "length", "target": 20}]}.
        """
        values = await asyncio.to_thread(self._rewards, recipe, run)
        question = {"values": {**values, **settings_in(settings)}, "prompt": prompt, "response": response}
        state = await asyncio.to_thread(self._try_reward.try_reward, {**question, "op": "start"}, request)
        until = time.monotonic() + SCORE_SECONDS
        try:
            while state["state"] == "working" and time.monotonic() < until:
                await asyncio.sleep(LOOK_SECONDS)
                state = self._try_reward.try_reward({"op": "poll", "key": state["key"]}, request)
        finally:
            if state["state"] == "working":  # also where the caller has gone
                self._try_reward.try_reward({"op": "cancel", "key": state["key"]}, request)
        if state["state"] != "done":
            wrong = answers.refusal_of(state.get("problems", []))
            raise ValueError(f"{state.get('error') or 'Scoring takes too long.'} {wrong}".strip())
        result: Json = state["result"]
        return result

    def _rewards(self, recipe: str, run: str) -> Json:
        if not run.strip():
            return dict(form_of(recipe, "{}")[1]["values"])
        reader = self._workspace.reader(run_named(run))
        if not reader.origin().knows("reward.components"):
            raise ValueError(
                f"The reward of {run.strip()} is not known here. Leave run empty, and name a recipe or give reward.components."
            )
        return dict(settings_of(reader)["values"])
