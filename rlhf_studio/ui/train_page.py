"""The Train page: choose a recipe, change what you like, see what will happen, start.

The page itself is drawn by ``assets/train/``. It asks here for everything it shows, and every answer starts from
:func:`parse_config`: what the browser sends is never trusted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gradio as gr

from rlhf_studio.config import (
    NOTHING_ALLOWED,
    STAGE_TITLES,
    STAGES,
    DataConfig,
    DemonstrationsConfig,
    PairsConfig,
    Permissions,
    RunConfig,
    StageConfig,
)
from rlhf_studio.config.bundled import BUNDLED, WRITTEN
from rlhf_studio.config.fitting import NOTHING_KNOWN
from rlhf_studio.config.io import (
    ConfigError,
    Problem,
    config_to_yaml,
    mapping_from_yaml,
    parse_config,
    section_model,
    walk_fields,
    with_values,
)
from rlhf_studio.config.recipes import Recipe, list_recipes
from rlhf_studio.inputs.chat import ChatError, ChatTemplate, find_template
from rlhf_studio.inputs.checks.accelerate_settings import default_config_file
from rlhf_studio.inputs.estimate.device import core_count, processor
from rlhf_studio.inputs.estimate.disk import OnDisk
from rlhf_studio.inputs.estimate.speed import SpeedMeasurement
from rlhf_studio.inputs.examples.preview import preview_examples
from rlhf_studio.inputs.fitted import fit_chosen, with_room
from rlhf_studio.inputs.models.facts import ModelFacts, check_causal_lm
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.preflight import Preflight, inspect_run
from rlhf_studio.inputs.prompts import PromptsError
from rlhf_studio.inputs.prompts.preview import preview_prompts
from rlhf_studio.inputs.settings_file import over_recipe, recipe_under
from rlhf_studio.language import _, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.gpus import find_gpus
from rlhf_studio.runs.pace import known_pace
from rlhf_studio.runs.visitors.limits import Admission, OwnRunFirst
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui import devices, forecast, outlook, problems
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.command import command_line
from rlhf_studio.ui.form import describe_form, nested, values_of
from rlhf_studio.ui.html import panel
from rlhf_studio.ui.lab.varying import Source, description_of, source_of
from rlhf_studio.ui.once import Once, nonce_of
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.sent import member
from rlhf_studio.ui.visiting.allowed import Capped
from rlhf_studio.ui.visiting.where import offered

logger = logging.getLogger(__name__)

Json = dict[str, Any]
PREVIEW_ROWS = 5
WHERE_IN_DATA = ("subset", "split", "revision", "column", "eval", "eval_split")
MOST_YAML_BYTES = 64_000  # also in assets/train/handover.js


class TrainPage:
    """What the Train page can ask and do.

    Args:
        workspace: the app's own, so that what it is told of queued runs and of recordings holds here too.
        access: who may start runs.
        waiting: how many runs of our own engines are alive or queued.
        inspect: the check before a start; replaced in tests.
        permissions: what rewards outside the program may use; their names are suggested to operators.
    """

    def __init__(
        self,
        workspace: Workspace,
        access: Access,
        waiting: Callable[[], int] = lambda: 0,
        inspect: Callable[..., Preflight] = inspect_run,
        permissions: Permissions = NOTHING_ALLOWED,
    ) -> None:
        self._runs = workspace
        self._access = access
        self._waiting = waiting
        self._inspect = inspect
        self._permissions = permissions
        self._speed = SpeedMeasurement(workspace.root)
        self._recipes = {recipe.name: recipe for recipe in list_recipes()}
        self._once = Once(lambda outcome: "run_id" in outcome)

    # --- what the page asks; nothing here changes anything --------------------------------------------------------------

    @callable_by(Role.VIEWER)
    def first(self, data: Any, request: gr.Request) -> Json:
        """What the first screen needs: the recipes as cards, and whether this person may start."""
        stages = [stage for stage in STAGES if any(recipe.stage == stage for recipe in self._recipes.values())]
        return {
            "stages": [{"name": stage, "title": _(STAGE_TITLES[stage])} for stage in stages],
            "recipes": [self._card(recipe) for recipe in self._recipes.values()],
            "own": [_own(recipe) for recipe in self._recipes.values() if recipe.asks],
            **offered(self._access, data, request),
        }

    @callable_by(Role.VIEWER)
    def boot(self, data: Any, request: gr.Request) -> Json:
        """All that the form needs as well: its fields, and the recipes with their values."""
        first, operator = self.first(data, request), self._access.is_operator(request, data)
        permissions = self._permissions if operator else NOTHING_ALLOWED
        values = [{"values": values_of(recipe.config)} for recipe in self._recipes.values()]
        return {
            **first,
            "forms": {stage["name"]: describe_form(permissions, stage["name"]) for stage in first["stages"]},
            "devices": self._devices(operator),
            "recipes": [card | of_recipe for card, of_recipe in zip(first["recipes"], values, strict=True)],
        }

    def _card(self, recipe: Recipe) -> Json:
        about = {"name": recipe.name, "stage": recipe.stage, "title": _(recipe.title), "summary": _(recipe.summary)}
        return {**about, "bundled": not recipe.download, "tags": outlook.tags(recipe, self._minutes(recipe))}

    @callable_by(Role.VIEWER)
    def check(self, data: Any, request: gr.Request) -> Json:
        """What these settings would do and what is wrong with them. For viewers, files and the hub are not looked at."""
        recipe = self._basis(data)
        operator, plays = self._access.is_operator(request, data), self._access.plays(request, data)
        data, fitted, learner = self._with_fitted(recipe, data) if operator or plays else (data, {}, None)
        wrong: list[Problem] = []
        try:
            config = self._config(data, recipe)
        except ConfigError as error:
            wrong = error.problems
            try:
                # the valid sections are still checked, so that the page shows all problems together
                config = self._config(data, recipe, without={problem.field.split(".")[0] for problem in wrong})
            except ConfigError:
                return {**_only_problems(_rows_of(wrong, data)), **fitted}
        capped = self._access.budget.problems(config, recipe) if plays and not operator else []
        wrong = [*wrong, *capped]
        report = self._look(config, data, learner) if operator or (plays and not wrong) else None
        bad = {problem.field.split(".")[0] for problem in wrong}
        report_problems = [problem for problem in report.problems if problem.field.split(".")[0] not in bad] if report else []
        if wrong:
            return {**_only_problems(_rows_of(wrong + report_problems, data)), **fitted, **self._duplicate(bool(capped))}
        return {
            "problems": _rows_of(report_problems, data),
            "notes": report.notes if report and not report_problems else [],  # problems first
            "risks": outlook.risks(config, report.known if report else NOTHING_KNOWN),
            "sentence": outlook.sentence(
                config, recipe, report.prompts if report else None, answering=report.answering if report else None
            ),
            "watch": outlook.watch(config, recipe),
            "figures": [self._time(config, report, recipe), *outlook.figures(report)],
            "memory": forecast.memory_view(report.memory_estimate, report.change) if report and report.memory_estimate else None,
            "measure": self._measuring(config, report, recipe),
            "command": command_line(config, recipe.name, recipe.config, _chosen(recipe, data)),
            "waiting": self._waiting(),
            "origin": description_of(self._runs, data, config),
            "name": self._name(config) if operator or plays else "",
            **fitted,
        }

    def _name(self, config: StageConfig) -> str:
        """What this run will be called; empty where the list of runs cannot be read."""
        try:
            return self._runs.name_for(config)
        except StoreError:
            return ""

    @staticmethod
    def _with_fitted(recipe: Recipe, data: Any) -> tuple[Any, Json, ModelFacts | ModelError | None]:
        """What the page sent, with what fits the model and the data in the place of what nobody has chosen; and as ``fitted`` what that is:
        value, why and whether it is a guess, by setting; and what the model's files told. As it was for a recipe that runs as it is."""
        chosen, values = _chosen(recipe, data), member(data, "values")
        if not chosen or not isinstance(values, dict):
            return data, {}, None
        own = {name: value for name, value in values.items() if name in chosen}
        fit = fit_chosen(recipe, own, chosen)
        if fit is None:
            return data, {}, None
        together = {**values_of(recipe.config), **{name: value.value for name, value in fit.fitted.items()}, **own}
        return {**data, "values": together}, {"fitted": {name: asdict(value) for name, value in fit.fitted.items()}}, fit.learner

    @callable_by(Role.VIEWER)
    def preview(self, data: Any, request: gr.Request) -> Json:
        """The prompts or examples as the model will read them, their lengths, and what is left out.

        Viewers see bundled data only: no other file of this machine is theirs to read, and nothing is fetched for them.
        """
        values, operator = member(data, "values"), self._access.is_operator(request, data)
        model = section_model("data", STAGES[self._basis(data).stage])
        what, learner = (_("prompts"), _("policy")) if model is DataConfig else (_("examples"), _("model"))
        try:
            config = model.model_validate(nested(values).get("data", {}))
            assert isinstance(config, DataConfig | DemonstrationsConfig | PairsConfig)
            source = config.prompts if isinstance(config, DataConfig) else config.source
            if not (operator or source in BUNDLED or any(source in names for names in WRITTEN.values())):
                return {"rows": [], "message": _("Only operators see the rows of files on this machine.")}
            tokenizer, chat = self._tokenizer(values, config, operator)
            if config.chat_template and chat is None:
                return {
                    "rows": [],
                    "message": _("The {what} appear here once the {learner} and its chat template can be read.").format(
                        what=what, learner=learner
                    ),
                }
            typed_seed = member(nested(values).get("engine"), "seed")
            seed = typed_seed if type(typed_seed) is int else 0
            preview: Any
            if isinstance(config, DataConfig):
                preview = preview_prompts(config, PREVIEW_ROWS, tokenizer, chat, seed)
            else:
                preview = preview_examples(config, PREVIEW_ROWS, tokenizer, chat, seed)
        except (ConfigError, PromptsError, ValueError) as error:
            if isinstance(error, PromptsError) and not operator:  # for operators, the check shows it beside the setting
                return {"rows": [], "message": problems.plain(error.message)}
            return {"rows": [], "message": _("The first rows appear here once the {what} can be read.").format(what=what)}
        return {**asdict(preview), "message": ""}

    @callable_by(Role.VIEWER)
    def to_yaml(self, data: Any, request: gr.Request) -> Json:
        """The settings as YAML text, for a download."""
        try:
            config = self._config(data, self._basis(data))
        except ConfigError as error:
            return {"problems": _rows_of(error.problems, data)}
        return {"text": config_to_yaml(config), "file_name": f"{config.recipe}.yaml"}

    @callable_by(Role.OPERATOR)
    def from_yaml(self, data: Any, request: gr.Request) -> Json:
        """The settings that a YAML text holds, as the form's values, and which of them the person has chosen.

        What a text that names a recipe leaves out is as in that recipe; of a recipe for a model of one's own it is still to be fitted.
        """
        text = member(data, "text")
        try:
            given = mapping_from_yaml(text if isinstance(text, str) else "", MOST_YAML_BYTES)
            recipe = recipe_under(given)
            settings, chosen = (given, set()) if recipe is None else over_recipe(recipe, given)
            fits = recipe is not None and bool(recipe.asks)
            config = parse_config(with_room(settings, chosen) if fits else settings)
        except ConfigError as error:
            return {"problems": _rows_of(error.problems, data)}
        values = values_of(config)
        values = {name: value for name, value in values.items() if name in chosen} if fits else values
        return {"values": values, "chosen": list(values), "basis": self._nearest(config)}

    # --- what the page does -----------------------------------------------------------------------------------------------

    def start(self, data: Any, request: gr.Request) -> Json:
        """Check everything, then queue the run. Gives ``run_id``, or ``problems`` with nothing started.

        ``parent`` is the run whose settings the form was filled with: the new run is a variation of it, or, with ``resume``, it goes on
        itself, from its newest checkpoint.
        The page sends one ``nonce`` per intention to start, which comes back: a double click or a repeated request starts one run.
        Visitors and students start what their budget allows. Raises :class:`gradio.Error` for viewers.
        """
        by = self._access.admission(request, data)
        return {**self._once.answer(data, lambda: self._start(data, by)), "nonce": nonce_of(data)}

    def _start(self, data: Any, by: Admission) -> Json:
        recipe = self._basis(data)
        try:
            config, source = self._config(data, recipe), source_of(self._runs, data)
            if by.limits is not None:
                self._access.budget.require(config, recipe, follows=source is not None)
                by.ask(self._runs.root)
            if source is not None and member(data, "resume") is True:
                return {"run_id": self._resume(source, source.resumed(config))}
            report = _passed(self._look(config, data))
            if source is None:
                run_id = self._runs.submit(config, config.name, report.expected_peak, "", by=by)
            else:
                run_id = self._runs.submit(source.varied(config), config.name, report.expected_peak, source.status.run_id, by=by)
        except ConfigError as error:
            return {"problems": _rows_of(error.problems, data), **self._duplicate(isinstance(error, Capped))}
        except (StoreError, OSError) as error:
            reason = getattr(error, "reason", "")
            limited = reason == "limit"
            if reason not in ("limit", "missing", "state"):  # these problems are no news for the log, and anybody can cause them
                logger.exception("a run could not be created")
            problem = Problem("", told(error) if limited else _("the run could not be created: {error}").format(error=told(error)))
            way = {"run": error.run} if isinstance(error, OwnRunFirst) else {}
            return {"problems": _rows_of([problem], data), **self._duplicate(limited), **way}
        return {"run_id": run_id}

    def _duplicate(self, capped: bool) -> Json:
        """The link to a copy of the Space without limits, for somebody who met a limit; empty elsewhere."""
        return {"duplicate": self._access.duplicate} if capped and self._access.duplicate else {}

    def _resume(self, source: Source, config: StageConfig) -> str:
        """Queue the run that the settings came from, to go on with them. Raises ConfigError."""
        on_disk = OnDisk(source.status.last_recorded_step, len(source.reader.checkpoints()))
        _passed(self._inspect(config, self._runs.root, folder=source.reader.working_folder(), on_disk=on_disk))
        try:
            self._runs.resume_with(source.status.run_id, config)
        except StoreError as error:
            raise ConfigError([Problem("", _("the run cannot be resumed: {error}").format(error=told(error)))]) from error
        return source.status.run_id

    def measure(self, data: Any, request: gr.Request) -> None:
        """Measure this machine's matrix rate in a process of its own; returns at once. Raises :class:`gradio.Error` for viewers."""
        self._access.require_operator(request, data)
        try:
            self._speed.begin("cuda" if member(data, "device") == "cuda" else "cpu")
        except OSError as error:
            raise gr.Error(_("The measurement could not be started: {error}").format(error=told(error)), print_exception=False) from error

    # --- helpers ------------------------------------------------------------------------------------------------------------

    def ready(self, data: Any) -> tuple[StageConfig, Preflight]:
        """The settings that the page sent, and what they need. Raises :class:`ConfigError` for what would keep them from starting."""
        config = self._config(data, self._basis(data))
        return config, _passed(self._look(config, data))

    def _look(self, config: StageConfig, data: Any, learner: ModelFacts | ModelError | None = None) -> Preflight:
        """The check before a start, in the folder where the run will work: for a variation, the folder of the varied run.

        ``learner``: what the files of the model that learns told just now; None where nobody has read them.
        """
        try:
            source = source_of(self._runs, data)
        except StoreError:
            source = None  # the page says it beside Start, and nothing starts
        known = {"learner": learner} if learner is not None else {}
        return self._inspect(config, self._runs.root, **known, **({"folder": source.reader.working_folder()} if source else {}))

    def _time(self, config: StageConfig, report: Preflight | None, recipe: Recipe) -> dict[str, str]:
        """The time of the whole run, as on the recipe's card. When nobody measured such a run, operators get this machine's best
        estimate."""
        return forecast.whole_time(config, report, recipe, self._runs.root, self._recipes, self._speed)

    def _minutes(self, recipe: Recipe) -> float | None:
        """How long a recipe takes on this machine."""
        known = forecast.estimate(recipe.config, self._runs.root, self._recipes, recipe, earlier=False)
        return known.high / 60 if known else None

    def _measuring(self, config: StageConfig, report: Preflight | None, recipe: Recipe) -> Json | None:
        """What the page may offer: to measure this machine, where nothing better is known. None when there is no need."""
        memory = report.memory_estimate if report else None
        if memory is None or memory.unknown or outlook.recipe_minutes(config, recipe) or not isinstance(config, RunConfig):
            return None
        if known_pace(self._runs.root, config):
            return None
        device = memory.device.kind
        known = self._speed.rate(device) is not None and not self._speed.running
        return None if known else {"device": device, "running": self._speed.running}

    @staticmethod
    def _devices(operator: bool) -> Json:
        """The device picker; viewers learn nothing about this machine."""
        if not operator:
            return devices.device_choices(None, None, None, "default_config.yaml")
        return devices.device_choices(find_gpus(), processor(), core_count(), default_config_file())

    @staticmethod
    def _config(data: Any, recipe: Recipe, without: Container[str] = ()) -> StageConfig:
        """The settings that the page sent, of the recipe's stage; sections in ``without`` are the recipe's. Where it asks for the recipe
        ``as_it_is``, all are but the values that it sent. Raises :class:`ConfigError`.
        """
        base, values = recipe.config, member(data, "values")
        if member(data, "as_it_is") is True:
            return with_values(base, values if isinstance(values, dict) else {})
        sent = {key: value for key, value in nested(values).items() if key not in without}
        of_recipe = base.model_dump(include={section for section in base.sections if section in without})
        return parse_config({**of_recipe, **sent, "recipe": recipe.name, "stage": recipe.stage})

    def _basis(self, data: Any) -> Recipe:
        name = member(data, "basis")
        return self._recipes.get(name if isinstance(name, str) else "") or next(iter(self._recipes.values()))

    def _nearest(self, config: StageConfig) -> str:
        """The recipe that settings started from; the first one of their stage where it is not known."""
        known = self._recipes.get(config.recipe)
        if known is not None and known.stage == config.stage:
            return known.name
        return next((recipe.name for recipe in self._recipes.values() if recipe.stage == config.stage), "")

    @staticmethod
    def _tokenizer(
        values: Any, config: DataConfig | DemonstrationsConfig | PairsConfig, operator: bool
    ) -> tuple[Path | None, ChatTemplate | None]:
        """The policy's tokenizer.json and chat template when it can be used; the check of the policy itself says what is wrong with it."""
        model = nested(values).get("model", {})
        if not isinstance(model, dict):
            return None, None
        policy, revision = model.get("policy"), model.get("revision", "main")
        if not isinstance(policy, str) or not isinstance(revision, str) or not (policy in BUNDLED or operator):
            return None, None
        try:
            facts = check_causal_lm(policy, revision)
            return facts.tokenizer, find_template(facts.tokenizer_files) if config.chat_template else None
        except (ModelError, ChatError):
            return None, None

    def build(self, functions: Sequence[Callable[..., Any]] = ()) -> gr.HTML:
        """The component; ``functions`` are what else its script may ask.

        Its ``start`` and ``measure`` events carry what those methods take; its value takes what :meth:`start` gives, as JSON.
        """
        own = [self.first, self.boot, self.check, self.preview, self.to_yaml, self.from_yaml]
        return panel("train", ["start", "measure"], [*own, *functions])


def _chosen(recipe: Recipe, data: Any) -> frozenset[str]:
    """The settings that a person has chosen on the card of a model of one's own; empty for other cards."""
    sent = member(data, "chosen")
    if not recipe.asks or not isinstance(sent, list):
        return frozenset()
    return frozenset(name for name in sent if isinstance(name, str)) | frozenset(recipe.asks)


def _own(recipe: Recipe) -> Json:
    """The card of a person's own model and data."""
    blank = {name: [] if name == "reward.components" else "" for name in recipe.asks}
    keeps = [name for name, _info in walk_fields(type(recipe.config)) if name in recipe.asks or _of_what_was_brought(name)]
    card = {"stage": recipe.stage, "name": recipe.name, "title": _(recipe.title), "summary": _(recipe.summary)}
    return {**card, "blank": blank, "keeps": keeps}


def _of_what_was_brought(name: str) -> bool:
    """Whether a setting says which model or data a person brought, and where in it to read: undoing settings leaves it."""
    section, _, setting = name.partition(".")
    return name == "model.revision" or section == "data" and (setting in WHERE_IN_DATA or setting.endswith("_column"))


def _passed(report: Preflight) -> Preflight:
    """Raises ConfigError for what keeps a run from starting."""
    if report.problems:
        raise ConfigError(report.problems)
    return report


def _rows_of(found_problems: list[Problem], data: Any) -> list[dict[str, str]]:
    """The problems as rows for the page that sent ``data``."""
    return problems.for_page(found_problems, member(data, "values"))


def _only_problems(rows: list[dict[str, str]]) -> Json:
    """The answer to a check of settings that cannot run."""
    return {"problems": rows, "notes": [], "risks": [], "sentence": "", "figures": [], "memory": None, "command": "", "waiting": 0}
