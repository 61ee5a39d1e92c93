"""What may follow from a run, each one click or one small form: suggestions, forks, variations, sweeps, more steps.

Every configuration is checked as Start on the Train page checks it, before anything is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import gradio as gr

from rlhf_studio.config import RewardModelRunConfig, RunConfig, Stage, StageConfig
from rlhf_studio.config.changes import Change, refusals
from rlhf_studio.config.io import ConfigError, Problem, parse_value, walk_fields, with_values
from rlhf_studio.config.recipes import list_recipes
from rlhf_studio.inputs.estimate.disk import NEW_RUN, OnDisk
from rlhf_studio.inputs.preflight import Preflight
from rlhf_studio.language import _, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lab.fork import refuse_only_read, settings_at
from rlhf_studio.runs.lab.names import repair_name
from rlhf_studio.runs.lab.resuming import schedule_note, with_more_steps
from rlhf_studio.runs.lab.suggestions import Suggestion, suggestions
from rlhf_studio.runs.lab.sweeps import MOST_RUNS, sweep_configs
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import MAX_NAME, Workspace
from rlhf_studio.ui import sent
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.forecast import estimate
from rlhf_studio.ui.form import describe_field, values_of
from rlhf_studio.ui.insights import Insights, Progress
from rlhf_studio.ui.lab.next_stage import next_stages
from rlhf_studio.ui.lab.varying import known_settings
from rlhf_studio.ui.once import Once
from rlhf_studio.ui.problems import for_page
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.serving.bounded import Bounded, TooBusy
from rlhf_studio.units import score_text
from rlhf_studio.visible import visible

COMMON: dict[Stage, tuple[str, ...]] = {
    "ppo": ("ppo.kl_coef", "ppo.learning_rate", "ppo.steps", "generation.temperature", "engine.seed"),
    "sft": ("sft.learning_rate", "sft.epochs", "sft.max_steps", "sft.batch_size", "engine.seed"),
    "reward_model": ("reward_model.learning_rate", "reward_model.epochs", "reward_model.centering", "engine.seed"),
    "dpo": ("dpo.beta", "dpo.learning_rate", "dpo.epochs", "engine.seed"),
    "evaluation": ("evaluation.prompts", "evaluation.samples", "generation.temperature", "engine.seed"),
}
"""By stage, the settings that the forms offer at once, the first of them for a sweep; any other can be added by its name."""
MOST_CHANGES, MOST_TEXT, MOST_ALIKE = 50, 100_000, 50
GOLD = "gold/score"
Json = dict[str, Any]


class Experiments:
    """What the dialogs of the Runs page and the end of the Live page can ask and start.

    Args:
        inspect: the check before a start, as :func:`~rlhf_studio.inputs.preflight.inspect_run`.
        queued: called when there is something new in the queue.
    """

    def __init__(
        self,
        workspace: Workspace,
        access: Access,
        insights: Insights,
        inspect: Callable[..., Preflight],
        queued: Callable[[], None] = lambda: None,
    ) -> None:
        self._workspace, self._access, self._insights = workspace, access, insights
        self._inspect, self._queued = inspect, queued
        self._looks = Bounded("experiments", threads=2, waiting=40)  # so that a form does not wait for a diagnosis
        self._starts = Bounded("start", threads=1, waiting=20)
        self._once = Once(lambda answer: "runs" in answer)

    # --- what the pages ask; nothing here changes anything --------------------------------------------------------------------

    @callable_by(Role.VIEWER)
    async def experiment_form(self, data: Any, request: gr.Request) -> Json:
        """What the forms need of a run: its checkpoints, and its settings at ``step``, or at its beginning.

        ``stays`` are the settings that a new run from there cannot change, and ``suggested`` values without which it could not begin.
        ``known`` are the settings that are known of a run whose ``values`` are not all its own; null for all others.
        """
        return await self._answer(self._looks, data, self._form)

    @callable_by(Role.VIEWER)
    async def experiment_ideas(self, data: Any, request: gr.Request) -> Json:
        """What to try next after a run, the most telling first; each with the time that it ``takes``, empty where nobody can tell.

        ``repaired`` is the newest run that was started to mend this one, with its ``run`` and ``name``, else null; what a run has tried
        already is not offered again. ``before`` says how a run came out beside the collapsed one that it is a variation of.
        """
        return await self._answer(self._looks, data, self._ideas)

    @callable_by(Role.OPERATOR)
    async def experiment_start(self, data: Any, request: gr.Request) -> Json:
        """Queue what ``how`` says: ``variation``, ``fork`` (from the checkpoint of ``step``), ``sweep`` or ``more steps``.

        ``changes`` are values by dotted name and ``axes`` lists of values; a text is read as the command line reads it. Gives the ids of
        the new ``runs``, or ``problems`` with nothing started. Asked again with the same ``nonce``, it gives the same runs.
        """
        if not self._access.is_operator(request, data):
            return {"problem": self._access.why_not(request, data)}
        answer = await self._answer(self._starts, data, lambda question: self._once.answer(question, lambda: self._start(question)))
        if "runs" in answer:
            self._queued()
        return answer

    def close(self) -> None:
        """Take no more questions."""
        self._looks.close()
        self._starts.close()

    async def _answer(self, where: Bounded, data: Any, make: Callable[[Any], Json]) -> Json:
        try:
            return await where.run(lambda: make(data))
        except ConfigError as error:
            rows = for_page(error.problems, sent.member(data, "changes"))
            return {"problems": rows, "problem": "; ".join(" ".join(filter(None, [row["field"], row["message"]])) for row in rows[:5])}
        except (StoreError, ValueError, TooBusy) as error:
            return {"problem": told(error)}

    def _form(self, data: Any) -> Json:
        reader = self._workspace.reader(sent.run_id(data))
        step = _step(sent.member(data, "step"))
        config = settings_at(reader.run_dir, step)
        fields = dict(walk_fields(type(config)))
        short = step is not None and 0 < config.planned_steps <= step
        return {
            "steps": [checkpoint.step for checkpoint in reader.checkpoints()],
            "values": {name: value for name, value in values_of(config).items() if name != "name"},
            "common": [describe_field(name, fields[name], config.stage) for name in COMMON[config.stage]],
            "stays": _stays(type(config)) if step is not None else [],
            "suggested": {config.steps_setting: (step or 0) + config.planned_steps} if short else {},
            "titles": {name: _(info.title or "") for name, info in fields.items() if "." in name},
            "known": known_settings(reader),
            "most_runs": MOST_RUNS,
        }

    def _ideas(self, data: Any) -> Json:
        run = sent.run_id(data)
        self._workspace.refuse_recording(run)
        status, reader = self._workspace.status(run), self._workspace.reader(run)
        config, over = reader.config(), status.state in ("finished", "stopped")
        following = [asdict(stage) for stage in next_stages(reader, self._alike(run, config))] if over else []
        if not isinstance(config, RunConfig):
            return {"ideas": [], "next": following, "kind": "", "state": status.state, "repaired": None, "before": ""}
        verdict = self._insights.verdict_of(run, Progress(status.epoch, status.step, status.state))
        kind = str(verdict["kind"])
        has_gold = reader.first_and_last([GOLD])[GOLD][1] is not None
        proposed: list[Suggestion] = []
        if status.state == "finished" or kind == "collapsed":
            proposed = suggestions(config, reader.origin(), kind, has_gold, verdict["changes"])
        proposed, repaired = self._not_yet_tried(run, proposed)
        ideas = [asdict(idea) for idea in proposed if idea.how != "more steps" or status.state == "finished"]
        recipes = {recipe.name: recipe for recipe in list_recipes("ppo")}
        for idea in ideas:
            varied = with_values(config, idea["changes"]) if idea["how"] == "variation" else None
            known = estimate(varied, self._workspace.root, recipes) if varied else None
            idea["takes"] = known.text if known else ""
            if idea["how"] == "more steps" and (note := schedule_note(config, idea["changes"]["ppo.steps"])):
                idea["why"] = f"{idea['why']} {note}"
        before = self._beside_parent(reader, kind) if over else ""
        return {"ideas": ideas, "next": following, "kind": kind, "state": status.state, "repaired": repaired, "before": before}

    def _not_yet_tried(self, run: str, proposed: Sequence[Suggestion]) -> tuple[list[Suggestion], Json | None]:
        """Those of the suggestions that no variation of the run is, and the newest variation that is one of its repairs."""
        children = [other for other in self._workspace.runs() if other.origin.parent == run and other.origin.parent_step is None]
        tried = [child.origin.changes for child in children]
        repairs = [idea.changes for idea in proposed if idea.purpose == "repair"]
        found = next((child for child in children if child.origin.changes in repairs), None)
        left = [idea for idea in proposed if idea.how != "variation" or idea.changes not in tried]
        return left, {"run": found.run_id, "name": found.name or found.run_id} if found else None

    def _beside_parent(self, reader: RunReader, kind: str) -> str:
        """How a run came out beside the one that it is a variation of, where that one collapsed; else nothing."""
        origin = reader.origin()
        if not origin.parent or origin.parent_step is not None:
            return ""
        try:
            before = self._workspace.status(origin.parent)
            verdict = self._insights.verdict_of(origin.parent, Progress(before.epoch, before.step, before.state))
            there = self._workspace.reader(origin.parent).first_and_last([GOLD])[GOLD][1]
        except StoreError:
            return ""  # it was deleted
        if verdict["kind"] != "collapsed":
            return ""
        here, name = reader.first_and_last([GOLD])[GOLD][1], visible(before.name or before.run_id, lines=False)
        if kind == "collapsed":
            return _("Like “{name}” before it, this run collapsed.").format(name=name)
        if here is None or there is None:
            return _("“{name}” collapsed; this run did not.").format(name=name)
        told = _("“{name}” collapsed; this run did not: gold {there} there, {here} here.")
        return told.format(name=name, there=score_text(there), here=score_text(here))

    def _alike(self, run: str, config: StageConfig) -> list[RunReader]:
        """Other finished reward model runs, when the run is one itself. Only the newest few, so that the answer stays quick."""
        if not isinstance(config, RewardModelRunConfig):
            return []
        runs = [
            other for other in self._workspace.runs() if other.stage == "reward_model" and other.state == "finished" and other.run_id != run
        ]
        return [self._workspace.reader(other.run_id) for other in runs[:MOST_ALIKE]]

    # --- what they start ----------------------------------------------------------------------------------------------------------

    def _start(self, data: Any) -> Json:
        run, how, name = sent.run_id(data), sent.member(data, "how"), sent.member(data, "name") or ""
        if not isinstance(name, str) or len(name) > MAX_NAME:
            raise ValueError(_("A run's name has at most {count} characters.").format(count=MAX_NAME))
        self._workspace.refuse_recording(run)
        kind = type(self._workspace.reader(run).config())
        if how == "sweep":
            made = self._sweep(run, _axes(sent.member(data, "axes"), kind), name)
        elif how == "more steps":
            made = self._longer(run, _changes(data, kind))
        elif how in ("variation", "fork"):
            step = _step(sent.member(data, "step")) if how == "fork" else None
            if how == "fork" and step is None:
                raise StoreError("Choose the checkpoint that the fork begins at.", "state")
            changes = _changes(data, kind)
            config = self._workspace.fork_settings(run, step, changes)
            if sent.member(data, "repair") is True and not name.strip():
                name = repair_name(self._workspace.status(run).name or run, {other.name for other in self._workspace.runs()})
            made = [self._workspace.fork(run, step, changes, name.strip(), memory=self._checked(config, run))]
        else:
            raise StoreError("There is no such experiment.", "missing")
        return {"runs": made, "names": [self._workspace.status(run_id).name for run_id in made]}

    def _sweep(self, run: str, axes: Mapping[str, list[Any]], name: str) -> list[str]:
        reader = self._workspace.reader(run)
        refuse_only_read(reader)
        config = reader.config()
        known = [(own, self._checked(own, run)) for _, own in sweep_configs(config, axes)]
        title = name.strip() or visible(self._workspace.status(run).name, lines=False)
        return self._workspace.submit_sweep(config, axes, title[:MAX_NAME], estimate=partial(_memory, known), parent=run)

    def _longer(self, run: str, changes: Mapping[str, Any]) -> list[str]:
        steps = changes.get("ppo.steps")
        if type(steps) is not int or set(changes) != {"ppo.steps"}:
            raise ConfigError([Problem("ppo.steps", "should be a whole number: how many steps the run is to have in all")])
        reader = self._workspace.reader(run)
        refuse_only_read(reader)
        status = self._workspace.status(run)
        on_disk = OnDisk(status.last_recorded_step, len(reader.checkpoints()))
        self._checked(with_more_steps(status, reader.config(), steps), run, on_disk)
        self._workspace.go_on(run, steps)
        return [run]

    def _checked(self, config: StageConfig, run: str, on_disk: OnDisk = NEW_RUN) -> tuple[int, int] | None:
        """The memory that a new run will need, which follows from ``run`` and works in its folder; ``there`` is what the run has on its
        disk. Raises ConfigError with what keeps the new run from starting."""
        report = self._inspect(config, self._workspace.root, folder=self._workspace.reader(run).working_folder(), on_disk=on_disk)
        if report.problems:
            raise ConfigError(report.problems)
        return report.expected_peak


def _memory(known: list[tuple[StageConfig, tuple[int, int] | None]], config: StageConfig) -> tuple[int, int] | None:
    return next((peak for own, peak in known if own == config), None)


def _stays(kind: type[StageConfig]) -> list[str]:
    """The settings that a run keeps when it goes on from a checkpoint."""
    return [name for name, _ in refusals([Change(name, None, None) for name, _ in walk_fields(kind)])]


def _step(step: Any) -> int | None:
    if step is not None and (type(step) is not int or step < 0):
        raise StoreError("A fork begins at a checkpoint's step: a whole number, or nothing for the beginning.", "state")
    return step


def _changes(data: Any, kind: type[StageConfig]) -> dict[str, Any]:
    """The changed settings as plain values. Raises ConfigError and StoreError for what is none."""
    changes = sent.member(data, "changes")
    changes = {} if changes is None else changes
    if not isinstance(changes, dict) or len(changes) > MOST_CHANGES:
        raise StoreError("The changes are settings by name.", "state")
    return {name: _value(name, value, kind) for name, value in changes.items()}


def _axes(axes: Any, kind: type[StageConfig]) -> dict[str, list[Any]]:
    """The settings of a sweep with their values. Raises ConfigError and StoreError for what is none."""
    if not isinstance(axes, dict) or not axes or len(axes) > 2 or not all(isinstance(values, list) for values in axes.values()):
        raise StoreError("A sweep varies one or two settings, each with a list of values.", "state")
    if any(len(values) > MOST_RUNS for values in axes.values()):
        raise ConfigError([Problem(next(iter(axes)), f"a sweep has at most {MOST_RUNS} runs")])
    return {name: [_value(name, value, kind) for value in values] for name, values in axes.items()}


def _value(name: str, value: Any, kind: type[StageConfig]) -> Any:
    if not isinstance(value, str):
        return value
    if len(value) > MOST_TEXT:
        raise ConfigError([Problem(name, f"has at most {MOST_TEXT:,} characters")])
    return parse_value(name, value.strip(), kind)
