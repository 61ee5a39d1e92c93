"""Settings that fit a person's own model and data: reads the small files, and asks the rule in :mod:`rlhf_studio.config.fitting`.

Only settings that the person has not chosen are fitted; those that were chosen count in what the others follow from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ceil, lcm
from typing import Any

from rlhf_studio.config import (
    DataConfig,
    DemonstrationsConfig,
    PairsConfig,
    RunConfig,
    StageConfig,
    SupervisedConfig,
    fitting,
    prompt_writing,
)
from rlhf_studio.config.fitting import Fitted, Learner
from rlhf_studio.config.io import ConfigError, Problem, merged, nested, parse_config, with_values
from rlhf_studio.config.recipes import Recipe
from rlhf_studio.inputs.chat import ChatError, ChatTemplate, find_template
from rlhf_studio.inputs.estimate.counts import parameters
from rlhf_studio.inputs.estimate.device import Device, find_device
from rlhf_studio.inputs.examples.cached import read_first
from rlhf_studio.inputs.examples.preview import measure as measure_examples
from rlhf_studio.inputs.examples.rows import holds_plain_texts
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.models.learner import remembered_learner
from rlhf_studio.inputs.preflight.supervised import is_supervised
from rlhf_studio.inputs.preflight.trained import form_of
from rlhf_studio.inputs.prompts import PromptsError
from rlhf_studio.inputs.prompts.cached import read_once
from rlhf_studio.inputs.prompts.held_out import FEWEST_PROMPTS, MOST_SET_ASIDE
from rlhf_studio.inputs.prompts.preview import measure as measure_prompts
from rlhf_studio.language import S_

LONGEST = 32_768  # tokens: nothing is cut while lengths are counted


def own_config(recipe: Recipe, settings: Mapping[str, Any], chosen: Collection[str]) -> tuple[StageConfig, dict[str, Fitted]]:
    """The settings of a run with a recipe for a model of one's own: what was chosen, and what fits; and what fits with its reasons.

    ``settings``: all settings as a plain mapping; of those that are not in ``chosen`` (dotted names) only the recipe's own values count.
    Raises :class:`ConfigError` for settings that are missing, not valid, or do not go together.
    """
    missing = [name for name in recipe.asks if not any(f"{one}.".startswith(f"{name}.") for one in chosen)]
    if missing:
        raise ConfigError([Problem(name, f"the recipe {recipe.name} needs it; add --{name} or write it into a file") for name in missing])
    fit = _fit(settings, chosen)
    rate = f"{fit.config.stage}.learning_rate"
    if isinstance(fit.learner, ModelFacts) and rate not in chosen and rate not in fit.fitted:
        raise ConfigError([Problem(rate, "the model's files do not tell how many weights it has, so no rate fits; choose one")])
    return with_values(fit.config, {name: value.value for name, value in fit.fitted.items()}), fit.fitted


@dataclass(frozen=True)
class Fit:
    """What fits a model and its data.

    Attributes:
        config: the settings that were chosen, over those of the recipe.
        fitted: by dotted name what fits in the place of the others.
        learner: what the files of the model that learns tell, or why it cannot be used; None where nobody has read them.
    """

    config: StageConfig
    fitted: dict[str, Fitted]
    learner: ModelFacts | ModelError | None


def fit_chosen(recipe: Recipe, given: Mapping[str, Any], chosen: Collection[str]) -> Fit | None:
    """What fits beside the settings that a person has chosen so far, of which some may be wrong; None where too many are.

    ``given``: the values of settings in ``chosen``, by dotted name. A section that cannot be read counts as in the recipe, and nothing is
    fitted to it.
    """
    base, own = recipe.config.model_dump(mode="json"), nested(given)
    try:
        return _fit(merged(base, own), chosen)
    except ConfigError as error:  # what is wrong is said by the check; the rest can be fitted all the same
        bad = {problem.field.split(".")[0] for problem in error.problems}
    try:
        return _fit(merged(base, {name: section for name, section in own.items() if name not in bad}), chosen, bad)
    except ConfigError:
        return None


def _fit(settings: Mapping[str, Any], chosen: Collection[str], bad: Collection[str] = ()) -> Fit:
    """``bad``: sections that nothing is fitted to. Raises :class:`ConfigError` for settings that cannot be read."""
    config = parse_config(with_room(settings, chosen))
    learner = None if "model" in bad else read_learner(config)
    if not isinstance(learner, ModelFacts):
        return Fit(config, {}, learner)
    device = find_device(config.engine)
    return Fit(config, fitted_settings(config, chosen, device, with_data="data" not in bad, facts=learner), learner)


def with_room(settings: Mapping[str, Any], chosen: Collection[str]) -> dict[str, Any]:
    """The settings with batch sizes that go together with those that were chosen, so that they can be read before they are fitted."""
    ppo = settings.get("ppo")
    if not isinstance(ppo, Mapping):
        return dict(settings)
    given = {name: ppo.get(name) for name in ("micro_batch_size", "mini_batch_size", "responses_per_prompt") if f"ppo.{name}" in chosen}
    numbers = {name: value for name, value in given.items() if value}
    if not all(type(value) is int and 0 < value <= fitting.BATCH**2 for value in numbers.values()):
        return dict(settings)  # the check of the settings says what is wrong
    mini = numbers.get("mini_batch_size") or numbers.get("micro_batch_size", 1)
    unit = lcm(mini, numbers.get("responses_per_prompt", 1))
    room = (
        {"mini_batch_size": mini}
        if "ppo.batch_size" in chosen
        else {"mini_batch_size": mini, "batch_size": unit * ceil(fitting.BATCH / unit)}
    )
    return {**settings, "ppo": {**ppo, **room}}


def read_learner(config: StageConfig) -> ModelFacts | ModelError | None:
    """What the files of the model that learns tell, or why it cannot be used; None in a stage in which none learns."""
    if not (isinstance(config, RunConfig) or is_supervised(config)):
        return None
    try:
        return remembered_learner(config, config.model.policy, config.model.revision)
    except ModelError as error:
        return error


def facts_of(config: StageConfig) -> ModelFacts | None:
    """What is known of the model that learns; None where it cannot be used, which the check before a start says."""
    learner = read_learner(config)
    return learner if isinstance(learner, ModelFacts) else None


def room_for_answers(config: StageConfig) -> int | None:
    """Tokens of the longest answer that the model that learns can write after the longest prompt; None where there is no limit."""
    facts = facts_of(config) if isinstance(config, RunConfig) else None
    if facts is None or facts.max_positions is None or not isinstance(config, RunConfig):
        return None
    return facts.max_positions - config.data.max_prompt_tokens


def fitted_settings(
    config: StageConfig, chosen: Collection[str], device: Device, *, with_data: bool = True, facts: ModelFacts | None = None
) -> dict[str, Fitted]:
    """Values for the settings that follow from the model and the data, by dotted name, without those in ``chosen``.

    ``facts``: of the model, where they are known already. Empty where the model cannot be used, or its files do not tell how many weights
    it has. What follows from data that cannot be read, or without ``with_data`` is not to be looked at, is left out.
    """
    facts = facts or facts_of(config)
    weights = parameters(facts) if facts is not None else None
    if facts is None or weights is None or not (isinstance(config, RunConfig) or is_supervised(config)):
        return {}
    return _Fitting(config, chosen, device.kind, facts, weights, with_data).fit()


class _Fitting:
    """One fitting: ``values`` collects what is fitted, and :meth:`now` gives what holds, chosen or fitted."""

    def __init__(
        self, config: RunConfig | SupervisedConfig, chosen: Collection[str], device: str, facts: ModelFacts, weights: int, with_data: bool
    ):
        self.config, self.chosen, self.device, self.facts, self.weights = config, chosen, device, facts, weights
        self.with_data = with_data
        self.values: dict[str, Fitted] = {}

    def put(self, name: str, fitted: Fitted | None) -> None:
        if fitted is not None and name not in self.chosen:
            self.values[name] = fitted

    def now(self, name: str) -> Any:
        section, _, setting = name.partition(".")
        return self.values[name].value if name in self.values else getattr(getattr(self.config, section), setting)

    def fit(self) -> dict[str, Fitted]:
        config, chat = self.config, self._template()
        fresh = bool(getattr(config.model, "fresh", False))
        self._writing(chat, fresh)
        if not fresh and config.model.quantization == "none":
            self.put("lora.enabled", fitting.use_lora(self.weights))
        self._rate()
        if isinstance(config, RunConfig):
            self._ppo(config, chat)
        else:
            self._supervised(config, chat)
        return self.values

    def _rate(self, examples: int | None = None) -> None:
        learner = Learner(self.weights, self.now("lora.enabled"), bool(getattr(self.config.model, "fresh", False)))
        self.put(f"{self.config.stage}.learning_rate", fitting.learning_rate(self.config.stage, learner, examples))

    def _writing(self, chat: ChatTemplate | None, fresh: bool) -> None:
        """How prompts are written: as in the run that trained the model; else as chats, where the tokenizer has a template and the data can
        be chats."""
        data = self.config.data
        if "data.chat_template" in self.chosen:
            return
        form, run = ({}, "") if fresh else form_of(self.config.model.policy)
        plain = bool(data.query_tokens_max) or data.overlong == "cut_right" if isinstance(data, DataConfig) else self._plain(data)
        if plain:
            self.put("data.chat_template", Fitted(False, S_("plain texts, or their beginnings, are no chats")))
        elif isinstance(form, dict) and form and not any(f"data.{name}" in self.chosen for name in form):
            for name, value in form.items():
                if name == "chat_template" or value != getattr(data, name):
                    self.put(f"data.{name}", Fitted(value, S_(f"as in the run {run}, which trained this model")))
        elif not data.prompt_format:
            self.put("data.chat_template", fitting.chat_template(chat is not None))

    def _plain(self, data: DemonstrationsConfig | PairsConfig) -> bool:
        """Whether the examples hold texts without a prompt; not where they cannot be read, which the check before a start says."""
        try:
            read = read_first(data.model_copy(update={"chat_template": False})) if self.with_data else None
        except PromptsError:
            return False
        return read is not None and holds_plain_texts(read.rows)

    def _as_written(self) -> dict[str, Any]:
        """How prompts are written now."""
        return {name: self.now(f"data.{name}") for name in prompt_writing(self.config)}

    def _template(self) -> ChatTemplate | None:
        """The tokenizer's chat template; None also for one that cannot be used, which the check before a start says."""
        try:
            return find_template(self.facts.tokenizer_files)
        except ChatError:
            return None

    def _ppo(self, config: RunConfig, chat: ChatTemplate | None) -> None:
        shares = lcm(max(1, config.ppo.micro_batch_size), max(1, config.engine.processes))
        mini = config.ppo.mini_batch_size if "ppo.mini_batch_size" in self.chosen else 2 * shares
        self.put("ppo.batch_size", fitting.batch_size(self.weights, self.device, lcm(config.ppo.responses_per_prompt, mini)))
        self.put("ppo.mini_batch_size", fitting.mini_batch_size(self.now("ppo.batch_size"), shares))
        if config.ppo.has_critic and config.critic.kind == "shared" and self.facts.shape is not None:
            self.put("ppo.critic_learning_rate", fitting.critic_learning_rate(self.facts.shape.hidden))
        self.put("ppo.warmup_steps", fitting.warm_up(self.now("ppo.steps")))
        self.put("generation.response_length", fitting.response_length(self.weights, self.device, chat=self.now("data.chat_template")))
        count, longest = self._prompts(config.data, chat)
        if longest is not None:
            self.put("data.max_prompt_tokens", fitting.room_for(longest, self.device, self._most(self.now("generation.response_length"))))
        if count is not None and count >= FEWEST_PROMPTS and not config.data.eval:
            self.put("data.eval_share", fitting.held_out_share(count, fitting.FEWEST_HELD_OUT, MOST_SET_ASIDE))

    def _most(self, response: int = 0) -> int | None:
        """Tokens that the model can read beside a response; None when there is no limit."""
        return None if self.facts.max_positions is None else self.facts.max_positions - response

    def _prompts(self, data: DataConfig, chat: ChatTemplate | None) -> tuple[int | None, int | None]:
        """(how many prompts there are, tokens of the longest that was looked at); None for what is not known."""
        if not self.with_data:
            return None, None
        data = data.model_copy(update=self._as_written())
        try:
            prompts = read_once(data)
            prepared = measure_prompts(prompts, data, self.facts.tokenizer, chat if data.chat_template else None, self.config.engine.seed)
        except (PromptsError, ChatError):
            return None, None
        count = None if prompts.partial else len(prompts)
        return count, max(prepared.lengths) if prepared is not None and prepared.lengths else None

    def _supervised(self, config: SupervisedConfig, chat: ChatTemplate | None) -> None:
        count, longest = self._examples(config, chat)
        stage = config.stage
        if longest is not None:
            self.put("data.max_tokens", fitting.room_for(longest, self.device, self._most()))
        if not count:
            return
        if not config.data.eval:
            self.put("data.eval_share", fitting.examples_share(count))
        aside = 0 if config.data.eval else min(fitting.MOST_EXAMPLES_HELD_OUT, int(count * self.now("data.eval_share")))
        learned = max(1, count - aside)
        self._rate(learned)
        self.put(f"{stage}.epochs", fitting.epochs(stage, learned))
        self.put(f"{stage}.batch_size", fitting.supervised_batch(learned, self.now(f"{stage}.epochs")))
        steps = self.now(f"{stage}.epochs") * ceil(learned / self.now(f"{stage}.batch_size"))
        steps = min(steps, config.training.max_steps or steps)
        self.put(f"{stage}.warmup_steps", fitting.warm_up(steps))
        self.put(f"{stage}.eval_every", fitting.eval_every(steps))
        self.put("engine.watch_every", fitting.watch_every(steps, config.engine.watch_every))

    def _examples(self, config: SupervisedConfig, chat: ChatTemplate | None) -> tuple[int | None, int | None]:
        """(how many examples there are, tokens of the longest that was looked at); None for what is not known."""
        if not self.with_data:
            return None, None
        data = config.data.model_copy(update={**self._as_written(), "max_tokens": LONGEST})
        try:
            measured = measure_examples(data, self.facts.tokenizer, chat if data.chat_template else None)
        except (PromptsError, ChatError):
            return None, None
        count = None if measured.read.partial else len(measured.read)
        lengths = measured.prepared.lengths if measured.prepared is not None else []
        return count, max((length.longest for length in lengths), default=None)
