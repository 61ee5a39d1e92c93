"""The Evaluate page: what it can ask and do. It is drawn by ``assets/evaluate/``.

Everyone may look at evaluations; starting one, and voting, is for operators.
"""

from __future__ import annotations

import io
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from rlhf_studio.analysis.evaluation.answers import PolicyAnswers, by_policy
from rlhf_studio.analysis.evaluation.frontier import titled
from rlhf_studio.analysis.evaluation.report import report_of
from rlhf_studio.analysis.logs.shareable import without_secrets
from rlhf_studio.config import EvaluationRunConfig
from rlhf_studio.config.bundled import EXAMPLE_EVALUATION, EXAMPLE_ROAD_EVALUATION
from rlhf_studio.config.io import ConfigError, Problem, walk_fields
from rlhf_studio.inputs.evaluation import EvaluationRequest, refers_to, settings_for
from rlhf_studio.inputs.preflight import Preflight, inspect_run
from rlhf_studio.jobs.export.evaluation import answer_lines, as_markdown, write_csv
from rlhf_studio.language import N_, _, language, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.evaluation.policies import LEARN_POLICIES
from rlhf_studio.runs.pace import STEP_TIME, seconds_left, step_seconds
from rlhf_studio.runs.paths import RUNS, is_run_name
from rlhf_studio.runs.records import RunStatus
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.alike import Alike
from rlhf_studio.ui.evaluate.arena import CHOICES, Arena, standings
from rlhf_studio.ui.evaluate.tables import matrix, report_values
from rlhf_studio.ui.html import panel
from rlhf_studio.ui.insights import Insights
from rlhf_studio.ui.once import Once
from rlhf_studio.ui.problems import plain
from rlhf_studio.ui.remembered import OfRuns
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.talk.offered import BROKEN, verdict_kind

MOST_RUNS = 200
MOST_SHOWN = 8
"""Policies side by side."""
ROWS = 10
"""Prompts of one page of the matrix."""
REMEMBERED = 6
NUMBERS = {"prompts": 100_000, "samples": 64, "seed": 2**31 - 1}
TEXTS = ("judge", "reference", "text")
FILES = ("csv", "md", "jsonl")
Json = dict[str, Any]


class EvaluatePage:
    """The page of one app.

    Args:
        wake: called when the queue has changed.
        inspect: the check before a start, as :func:`~rlhf_studio.inputs.preflight.inspect_run`.
        insights: know of runs whether they collapsed.
    """

    def __init__(
        self,
        workspace: Workspace,
        access: Access,
        wake: Callable[[], None] = lambda: None,
        inspect: Callable[..., Preflight] = inspect_run,
        insights: Insights | None = None,
    ):
        self._workspace, self._access, self._wake, self._inspect = workspace, access, wake, inspect
        self._arena = Arena(lambda run: workspace.reader(run).run_dir)
        self._lock = threading.Lock()
        self._once = Once(lambda outcome: "run" in outcome)
        self._known_steps = OfRuns(self._steps)
        self._alike, self._insights = Alike(workspace), insights
        self._known: OrderedDict[tuple[str, int, int, str, str], Json] = OrderedDict()
        self._answers: OrderedDict[tuple[str, int, int], dict[str, PolicyAnswers]] = OrderedDict()

    def build(self) -> gr.HTML:
        """The component."""
        functions = [self.boot, self.answers, self.begin, self.duel, self.vote, self.file]
        return panel("evaluate", [], functions)

    # --- looking ---------------------------------------------------------------------------------------------------------------------

    @callable_by(Role.VIEWER)
    def boot(self, data: Any, request: gr.Request) -> Json:
        """The runs whose policies can be evaluated, and the evaluations that there are, newest first.

        Where ``run`` is one of these, or a recorded example, and has changed since it was as ``seen`` says: its ``report``, and the next
        ``seen``. ``ends`` is the id of the run whose start and end one click compares, ``example`` that of the recorded evaluation that an
        empty page shows; empty where there is none.
        """
        own = self._access.rights(request, data)
        try:
            runs = self._workspace.runs()[:MOST_RUNS]
        except StoreError as error:
            return {**own, "problem": told(error), "runs": [], "evaluations": []}
        policies: list[Json] = []
        kept: list[RunStatus] = []
        evaluations: list[Json] = []
        for run in runs:
            row = {"id": run.run_id, "name": run.name or run.run_id, "state": run.state, "step": run.step, "total": run.total_steps}
            row["created_at"] = run.created_at
            if run.stage == "evaluation":
                evaluations.append({**row, "cause": told(without_secrets(run.cause)), "phase": told(run.phase)})
            elif run.stage in LEARN_POLICIES and run.origin.keeps_model and (steps := self._known_steps.of(run)):
                policies.append({**row, "steps": steps, "stage": run.stage})
                kept.append(run)
        apart = self._alike.names(kept)
        policies = [{**row, "apart": apart.get(row["id"], "")} for row in policies]
        example = EXAMPLE_EVALUATION if self._workspace.recordings.knows(EXAMPLE_EVALUATION) else ""
        listed = {**own, "problem": "", "runs": policies, "evaluations": evaluations, "example": example, "ends": self._ends(kept)}
        wanted = sent.member(data, "run")
        chosen = next((row for row in evaluations if row["id"] == wanted), None)
        if chosen is None and example and wanted in (EXAMPLE_EVALUATION, EXAMPLE_ROAD_EVALUATION):
            chosen = {"id": wanted, "state": "finished", "step": 0}
        if chosen is None or (version := f"{chosen['id']} {chosen['state']} {chosen['step']}") == sent.member(data, "seen"):
            return listed
        return {**listed, "report": self._report(chosen["id"], sent.member(data, "first")), "seen": version}

    def _ends(self, runs: Sequence[RunStatus]) -> str:
        """The newest run that has finished and is not broken, of PPO if there is one; where all are broken, the newest."""
        finished = sorted((run for run in runs if run.state == "finished"), key=lambda run: run.stage != "ppo")
        return next(
            (run.run_id for run in finished if verdict_kind(run, {}, self._insights) not in BROKEN), finished[0].run_id if finished else ""
        )

    def _steps(self, run: RunStatus) -> list[int]:
        """At which steps a policy was kept."""
        try:
            return [info.step for info in self._workspace.reader(run.run_id).policies()]
        except StoreError:
            return []

    def _report(self, run: str, first: Any) -> Json:
        """The table, win rates and frontier of an evaluation, and how far it is. ``first``: the policy that others are compared with."""
        try:
            reader = self._workspace.reader(run)
            status = reader.status()
            key = (run, status.epoch, status.step, first if isinstance(first, str) else "", language())
            with self._lock:
                values = self._known.get(key)
            if values is None:
                values = report_values(report_of(reader, key[3]))
                with self._lock:
                    self._known[key] = values
                    while len(self._known) > REMEMBERED:
                        self._known.popitem(last=False)
            votes, reference = self._votes(run, values["first"]), self._by_name(refers_to(reader.config()))
            pace = step_seconds(reader.columns([STEP_TIME])[1][STEP_TIME])
        except (StoreError, ValueError) as error:
            return {"problem": told(error)}
        state = {
            "state": status.state,
            "step": status.step,
            "total": status.total_steps,
            "phase": told(status.phase),
            "elapsed": max(0.0, time.time() - (status.started_at or status.created_at)),
            "left": seconds_left(pace, status.step, status.total_steps),
            "cause": told(without_secrets(status.cause)),
        }
        return {"problem": "", "name": status.name, **state, **values, **votes, "reference": reference}

    def _by_name(self, reference: str) -> str:
        """A reference ``RUN@STEP`` with the name of the run, where it is one of this workspace that has a name."""
        run, _, step = reference.rpartition("@")
        if not is_run_name(run):
            return reference
        try:
            name = self._workspace.reader(run).status().name
        except StoreError:  # it is gone, or somebody else's
            return reference
        return titled(f"{name}@{step}") if name else reference

    def _votes(self, run: str, first: str) -> Json:
        counted = self._arena.votes(run, list(self._policies(run).values()))
        rows = [
            {
                "policy": name,
                "rate": {"value": won.rate.value, "low": won.rate.low, "high": won.rate.high},
                "wins": won.wins,
                "ties": won.ties,
                "losses": won.losses,
            }
            for name, won in standings(counted.votes, first).items()
        ]
        return {"votes": rows, "votes_left_out": counted.left_out}

    def _policies(self, run: str) -> dict[str, PolicyAnswers]:
        reader = self._workspace.reader(run)
        status = reader.status()
        key = (run, status.epoch, status.step)
        with self._lock:
            known = self._answers.get(key)
        if known is None:
            known = by_policy(reader.answers())
            with self._lock:
                self._answers[key] = known
                while len(self._answers) > REMEMBERED:
                    self._answers.popitem(last=False)
        return known

    @callable_by(Role.VIEWER)
    def answers(self, data: Any, request: gr.Request) -> Json:
        """Some prompts with the answers of some policies, and what differs from those of one of them."""
        try:
            policies = self._policies(sent.run_id(data))
        except StoreError as error:
            return {"problem": told(error)}
        chosen = [policies[name] for name in _names(sent.member(data, "policies")) if name in policies][:MOST_SHOWN]
        prompt_numbers = sorted({int(number) for policy in policies.values() for number in policy.prompts})
        start = sent.member(data, "start")
        first = min(start, max(len(prompt_numbers) - 1, 0)) if type(start) is int and start >= 0 else 0
        draw = sent.member(data, "draw")
        against = sent.member(data, "against")
        other = policies.get(against) if isinstance(against, str) else None
        rows = matrix(chosen, other, prompt_numbers[first : first + ROWS], draw if type(draw) is int else 0)
        draws = 1 + max((record.draw for policy in chosen for record in policy.records), default=0)
        return {"problem": "", "rows": rows, "start": first, "total": len(prompt_numbers), "draws": draws}

    @callable_by(Role.VIEWER)
    def file(self, data: Any, request: gr.Request) -> Json:
        """The table as CSV or Markdown, or the answers as JSON Lines: a file's name and its text. ``first`` as in the report."""
        kind, first = sent.member(data, "kind"), sent.member(data, "first")
        against = first if isinstance(first, str) else ""
        if kind not in FILES:
            return {"problem": _("Choose csv, md or jsonl.")}
        try:
            run = sent.run_id(data)
            reader = self._workspace.reader(run)
            if kind == "jsonl":
                text = "".join(f"{line}\n" for line in answer_lines(reader.answers()))
            elif kind == "md":
                text = as_markdown(report_of(reader, against), refers_to(reader.config()))
            else:
                table = io.StringIO()
                write_csv(report_of(reader, against), table)
                text = table.getvalue()
        except (StoreError, ValueError) as error:
            return {"problem": told(error)}
        return {"problem": "", "name": f"evaluation-{run}.{kind}", "text": text}

    # --- acting ----------------------------------------------------------------------------------------------------------------------

    @callable_by(Role.OPERATOR)
    def begin(self, data: Any, request: gr.Request) -> Json:
        """Check an evaluation as every run is checked, and queue it. Gives the ``run``; or what is wrong, a sentence for each, and where.

        ``fields`` has the names of the form's fields that the sentences of ``problem`` are about.
        """
        if not self._access.is_operator(request, data):
            return {"problem": self._access.why_not(request, data)}
        try:
            evaluation = _request(data)
            for policy in evaluation.policies:
                self._workspace.refuse_recording(policy.partition("@")[0])
            config = settings_for(evaluation, self._workspace.root / RUNS)
            name = sent.member(data, "name")
            checked = self._inspect(config, self._workspace.root)
            if checked.problems:
                raise ConfigError(checked.problems)
            title = (name if isinstance(name, str) else "").strip()[:120] or "evaluation"
            return self._once.answer(data, lambda: self._submit(config, title, checked.expected_peak))
        except ConfigError as error:
            return _not_possible(error.problems)
        except (StoreError, ValueError) as error:
            return {"problem": told(error), "fields": []}

    def _submit(self, config: EvaluationRunConfig, title: str, memory: tuple[int, int] | None) -> Json:
        run = self._workspace.submit(config, title, memory)
        self._wake()
        return {"problem": "", "run": run}

    @callable_by(Role.OPERATOR)
    def duel(self, data: Any, request: gr.Request) -> Json:
        """Two answers to one prompt, without names."""
        if not self._access.is_operator(request, data):
            return {"problem": self._access.why_not(request, data)}
        try:
            run = sent.run_id(data)
            self._workspace.refuse_recording(run)
            policies = self._policies(run)
            chosen = [policies[name] for name in _names(sent.member(data, "policies")) if name in policies]
            opened = self._arena.next(run, chosen)
        except StoreError as error:
            return {"problem": told(error)}
        if opened is None:
            return {"problem": _("No two of the chosen policies have different answers to a prompt yet.")}
        key, duel = opened
        return {"problem": "", "key": key, "prompt": duel.prompt, "left": duel.texts[0], "right": duel.texts[1]}

    @callable_by(Role.OPERATOR)
    def vote(self, data: Any, request: gr.Request) -> Json:
        """Keep what a person said of a duel, and tell who the two were."""
        if not self._access.is_operator(request, data):
            return {"problem": self._access.why_not(request, data)}
        key, choice = sent.member(data, "key"), sent.member(data, "choice")
        if not isinstance(key, str) or choice not in CHOICES:
            return {"problem": _("Choose left, right or tie.")}
        try:
            duel = self._arena.vote(key, choice)
        except StoreError as error:
            return {"problem": _("The vote could not be kept: {error}").format(error=told(error))}
        if duel is None:
            return {"problem": _("This comparison is no longer open; here is another one.")}
        count = len(self._arena.votes(duel.run, list(self._policies(duel.run).values())).votes)
        return {"problem": "", "left": duel.left[0], "right": duel.right[0], "votes": count}


FIELDS = {
    "evaluation.policies": ("policies", N_("Who answers")),
    "data.prompts": ("file", N_("Prompts")),
    "--prompts": ("file", N_("Prompts")),
    "evaluation.prompts": ("prompts", N_("How many")),
    "evaluation.samples": ("samples", N_("Answers per prompt")),
    "evaluation.seed": ("seed", N_("Seed")),
    "generation.temperature": ("temperature", N_("Temperature")),
    "evaluation.judge": ("judge", N_("Judge")),
    "reward.components.0.model": ("reward", N_("Reward")),
    "reward.components.0.file": ("reward", N_("Reward")),
    "reward.components.0.kind": ("reward", N_("Reward")),
    "--reward": ("reward", N_("Reward")),
    "evaluation.text": ("text", N_("Held-out text")),
    "evaluation.text_column": ("text", N_("Held-out text")),
    "evaluation.reference": ("reference", N_("Reference model")),
}
"""Setting -> the form's field, and what the form calls it. The rest of the settings are those of the run that is evaluated."""


def _not_possible(problems: Sequence[Problem]) -> Json:
    """What is wrong, as a text with one line for each problem, and the form's fields that are to blame."""
    titles = {name: field.title for name, field in walk_fields(EvaluationRunConfig)}
    order = list(FIELDS)
    problems = sorted(problems, key=lambda problem: order.index(problem.field) if problem.field in FIELDS else len(order))
    lines = []
    for problem in problems:
        title = _(FIELDS[problem.field][1] if problem.field in FIELDS else titles.get(problem.field) or problem.field)
        message = plain(told(problem.message))
        if title and message.split()[0][1:].islower():  # it goes on after a colon; GPT-2 keeps its capitals
            message = message[:1].lower() + message[1:]
        lines.append(f"{title}: {message}" if title else message)
    return {"problem": "\n".join(lines), "fields": [FIELDS[problem.field][0] for problem in problems if problem.field in FIELDS]}


def _names(names: Any) -> list[str]:
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _request(data: Any) -> EvaluationRequest:
    """The evaluation that the form describes. Raises ValueError for data that no form sends."""
    policies = tuple(line.strip() for line in str(sent.member(data, "policies") or "").splitlines() if line.strip())
    if not policies:
        raise ValueError(_("Choose at least one policy."))
    settings: Json = {}
    for name, most in NUMBERS.items():
        value = sent.member(data, name)
        if value is not None:
            if type(value) is not int or not 0 <= value <= most:
                raise ValueError(
                    _("{capitalize}: should be a whole number from 0 to {most:,}.").format(capitalize=name.capitalize(), most=most)
                )
            settings[name] = value
    if sent.member(data, "greedy") is True:
        settings["greedy"] = True
    texts = {name: value.strip() for name in (*TEXTS, "file", "reward") if isinstance(value := sent.member(data, name), str)}
    settings |= {name: texts[name] for name in TEXTS if texts.get(name)}
    temperature = sent.member(data, "temperature")
    overrides = {} if temperature is None else {"generation.temperature": str(temperature)}
    return EvaluationRequest(policies, texts.get("file") or None, texts.get("reward") or None, settings, overrides)
