"""Settings that fit a person's own model and data: reads the small files, and asks the rule in :mod:`rlhf_studio.config.fitting`.

Only settings that the person has not chosen are fitted; those that were chosen count in what the others follow from.
"""

from __future__ import annotations

from collections.abc import Collection
from math import ceil, lcm
from typing import Any

from rlhf_studio.config import DataConfig, RunConfig, StageConfig, SupervisedConfig, fitting
from rlhf_studio.config.fitting import Fitted, Learner
from rlhf_studio.config.io import with_values
from rlhf_studio.inputs.chat import ChatError, ChatTemplate, find_template
from rlhf_studio.inputs.estimate.counts import parameters
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.examples.preview import measure as measure_examples
from rlhf_studio.inputs.models.facts import ModelFacts, check_causal_lm
from rlhf_studio.inputs.models.files import Hub, ModelError
from rlhf_studio.inputs.preflight.supervised import is_supervised, start_of
from rlhf_studio.inputs.prompts import PromptsError
from rlhf_studio.inputs.prompts.cached import read_once
from rlhf_studio.inputs.prompts.preview import measure as measure_prompts

MOST_TOKENS = {"cpu": 256, "cuda": 1024}
"""Of a prompt, or of an example, by the kind of device: longer ones cost more than they teach in a first run."""


def fitted_settings(
    config: StageConfig, chosen: Collection[str], device: Device, hub: Hub | None = None, *, with_data: bool = True
) -> dict[str, Fitted]:
    """Values for the settings that follow from the model and the data, by dotted name, without those in ``chosen``.

    Empty where the model cannot be used, which the check before a start says. What follows from data that cannot be read, or without
    ``with_data`` is not to be looked at, is left out.
    """
    if not (isinstance(config, RunConfig) or is_supervised(config)):
        return {}
    try:
        facts = check_causal_lm(config.model.policy, config.model.revision, hub) if isinstance(config, RunConfig) else start_of(config, hub)
    except ModelError:
        return {}
    weights = parameters(facts)
    if weights is None:
        return {}
    return _Fitting(config, chosen, device, facts, weights, with_data=with_data).fit()


class _Fitting:
    """One fitting: ``values`` collects what is fitted, and :meth:`now` gives what holds, chosen or fitted."""

    def __init__(
        self,
        config: RunConfig | SupervisedConfig,
        chosen: Collection[str],
        device: Device,
        facts: ModelFacts,
        weights: int,
        with_data: bool,
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
        chat = self._template()
        data = self.config.data
        if not data.prompt_format:
            self.put("data.chat_template", fitting.chat_template(chat is not None))
        fresh = bool(getattr(self.config.model, "fresh", False))
        if not fresh and self.config.model.quantization == "none":
            self.put("lora.enabled", fitting.use_lora(self.weights))
        width = self.facts.shape.hidden if self.facts.shape else None
        learner = Learner(self.weights, self.now("lora.enabled"), fresh, width)
        section = self.config.stage
        self.put(f"{section}.learning_rate", fitting.learning_rate(section, learner))
        if isinstance(self.config, RunConfig):
            self._ppo(self.config, learner, chat)
        else:
            self._supervised(self.config, chat)
        return self.values

    def _template(self) -> ChatTemplate | None:
        """The tokenizer's chat template; None also for one that cannot be used, which the check before a start says."""
        try:
            return find_template(self.facts.tokenizer_files)
        except ChatError:
            return None

    def _ppo(self, config: RunConfig, learner: Learner, chat: ChatTemplate | None) -> None:
        slow = self.device.kind == "cpu" and self.weights >= fitting.LARGE_FOR_A_CPU
        why = f"{fitting.in_words(self.weights)} weights on {'a CPU' if self.device.kind == 'cpu' else 'a GPU'}"
        group = lcm(config.ppo.responses_per_prompt, config.ppo.mini_batch_size)  # the recipe's mini-batch, where none was chosen, is 1
        self.put("ppo.batch_size", Fitted(group * ceil((16 if slow else 64) / group), why))
        batch = self.now("ppo.batch_size")
        self.put("ppo.mini_batch_size", Fitted(batch // 2 if batch % 2 == 0 else batch, "half of the batch"))
        if config.ppo.has_critic:
            self.put("ppo.critic_learning_rate", fitting.critic_learning_rate(learner))
        self.put("ppo.warmup_steps", fitting.warm_up(self.now("ppo.steps")))
        if self.device.kind == "cuda":
            self.put("generation.response_length", Fitted(128 if chat else 64, why))
        elif slow:
            self.put("generation.response_length", Fitted(24, why))
        count, longest = self._prompts(config.data, chat)
        response = self.now("generation.response_length")
        if longest is not None:
            self.put("data.max_prompt_tokens", fitting.room_for(longest, self._most(response)))
        if count is not None and not config.data.eval:
            self.put("data.eval_share", fitting.held_out_share(count))

    def _most(self, response: int = 0) -> int:
        most = MOST_TOKENS.get(self.device.kind, MOST_TOKENS["cpu"])
        return most if self.facts.max_positions is None else min(most, self.facts.max_positions - response)

    def _prompts(self, data: DataConfig, chat: ChatTemplate | None) -> tuple[int | None, int | None]:
        """(how many prompts there are, tokens of the longest that was looked at); None for what is not known."""
        if not self.with_data:
            return None, None
        data = data.model_copy(update={"chat_template": self.now("data.chat_template")})
        try:
            prompts = read_once(data)
            prepared = measure_prompts(prompts, data, self.facts.tokenizer, chat if data.chat_template else None, self.config.engine.seed)
        except (PromptsError, ChatError):
            return None, None
        count = None if prompts.partial else len(prompts)
        return count, max(prepared.lengths) if prepared is not None and prepared.lengths else None

    def _supervised(self, config: SupervisedConfig, chat: ChatTemplate | None) -> None:
        count, longest = self._examples(config, chat)
        section = config.stage
        if longest is not None:
            self.put("data.max_tokens", fitting.room_for(longest, 2 * self._most() if self.facts.max_positions is None else self._most()))
        if count is None:
            return
        if not config.data.eval:
            self.put("data.eval_share", fitting.held_out_share(count, fitting.FEWEST_EXAMPLES_HELD_OUT))
        learned = max(1, count - round(count * self.now("data.eval_share"))) if not config.data.eval else count
        self.put(f"{section}.epochs", fitting.passes(section, learned))
        self.put(f"{section}.batch_size", fitting.supervised_batch(learned, self.now(f"{section}.epochs")))
        steps = self.now(f"{section}.epochs") * ceil(learned / self.now(f"{section}.batch_size"))
        steps = min(steps, config.training.max_steps or steps)
        self.put(f"{section}.warmup_steps", fitting.warm_up(steps))
        self.put(f"{section}.eval_every", Fitted(max(1, steps // 8), f"eight measurements in {steps:,} steps"))

    def _examples(self, config: SupervisedConfig, chat: ChatTemplate | None) -> tuple[int | None, int | None]:
        """(how many examples there are, tokens of the longest that was looked at); None for what is not known."""
        if not self.with_data:
            return None, None
        data = config.data.model_copy(update={"chat_template": self.now("data.chat_template"), "max_tokens": 32768})
        try:
            measured = measure_examples(data, self.facts.tokenizer, chat if data.chat_template else None)
        except (PromptsError, ChatError):
            return None, None
        count = len(measured.read) if measured.complete else None
        lengths = measured.prepared.lengths if measured.prepared is not None else []
        return count, max((length.longest for length in lengths), default=None)


def with_fitted(config: StageConfig, chosen: Collection[str], device: Device) -> tuple[StageConfig, dict[str, Fitted]]:
    """The settings with those that follow from model and data, and which these are.

    Raises :class:`ConfigError` where they do not go together with what was chosen.
    """
    fitted = fitted_settings(config, chosen, device)
    return with_values(config, {name: value.value for name, value in fitted.items()}), fitted
