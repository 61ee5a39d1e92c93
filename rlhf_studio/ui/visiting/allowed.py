"""What visitors and students may start: bundled recipes, with the settings that are worth playing with, within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.config import RunConfig, StageConfig
from rlhf_studio.config.io import ConfigError, Problem, walk_fields
from rlhf_studio.config.recipes import Recipe, list_recipes
from rlhf_studio.language import N_, _
from rlhf_studio.runs.visitors.limits import Limits
from rlhf_studio.ui.visiting.modes import Mode

RECIPES = ("world", "world-lora", "world-rloo", "world-grpo")
FREE_SETTINGS = frozenset(
    {
        *("name", "ppo.learning_rate", "ppo.critic_learning_rate", "ppo.lr_schedule", "ppo.warmup_steps", "ppo.max_grad_norm"),
        *("ppo.kl_coef", "ppo.kl_controller", "ppo.kl_target", "ppo.kl_horizon", "ppo.kl_estimator", "ppo.gamma", "ppo.lam"),
        *("ppo.cliprange", "ppo.cliprange_high", "ppo.cliprange_value", "ppo.vf_coef", "ppo.entropy_coef", "ppo.whiten_advantages"),
        *("ppo.target_kl", "ppo.ratio_level", "ppo.loss_average", "lora.alpha"),
        *("generation.temperature", "generation.top_k", "generation.top_p", "engine.seed"),
    }
)
"""Settings that cost nothing, whatever their value."""


class Capped(ConfigError):
    """Settings that an operator may start, and visitors and students may not."""


@dataclass(frozen=True)
class Budget:
    """What one run of a visitor or student may cost.

    Attributes:
        most: the largest value of each setting that costs time or room.
        limits: how many runs there may be, for how long, and for how long they are kept.
        begins: where the limits hold, as the first words of a sentence.
        who: whom they hold for.
    """

    most: Mapping[str, float] = field(
        default_factory=lambda: {
            "ppo.steps": 40,
            "lora.r": 16,
            "ppo.batch_size": 64,
            "ppo.mini_batch_size": 64,
            "ppo.ppo_epochs": 8,
            "ppo.responses_per_prompt": 8,
            "generation.response_length": 32,
        }
    )
    limits: Limits = Limits()
    begins: str = N_("Here")
    who: str = N_("visitors")

    def require(self, config: StageConfig, recipe: Recipe, *, follows: bool) -> None:
        """Raises :class:`Capped` for what visitors and students may not start; ``follows``: the settings came from another run."""
        refusals = self.problems(config, recipe)
        if follows:
            refusals = [
                Problem(
                    "",
                    _("{begins}, {who} start from a recipe, not from the settings of another run.").format(
                        begins=_(self.begins), who=_(self.who)
                    ),
                )
            ]
        if refusals:
            raise Capped(refusals)

    def problems(self, config: StageConfig, recipe: Recipe) -> list[Problem]:
        """Why a visitor may not start this, by setting."""
        if recipe.name not in RECIPES or not isinstance(config, RunConfig) or not isinstance(recipe.config, RunConfig):
            titles = "; ".join(allowed.title for allowed in list_recipes() if allowed.name in RECIPES)
            return [
                Problem(
                    "",
                    _("{begins}, {who} start the recipes of the bundled world: {titles}{elsewhere}.").format(
                        begins=_(self.begins), who=_(self.who), titles=titles, elsewhere=self._elsewhere
                    ),
                )
            ]
        refusals = []
        for name, _other in walk_fields(RunConfig):
            value, own = _value(config, name), _value(recipe.config, name)
            if value == own or name in FREE_SETTINGS or name in ("recipe", "stage"):
                continue
            if name not in self.most:
                refusals.append(
                    Problem(
                        name,
                        _("{begins}, {who} cannot change this setting{elsewhere}").format(
                            begins=_(self.begins), who=_(self.who), elsewhere=self._elsewhere
                        ),
                    )
                )
            elif value > self.most[name]:
                refusals.append(
                    Problem(
                        name,
                        _("{begins}, {who} have at most {most:g}{elsewhere}").format(
                            begins=_(self.begins), who=_(self.who), most=self.most[name], elsewhere=self._elsewhere
                        ),
                    )
                )
        return refusals

    @property
    def _elsewhere(self) -> str:
        """What students do about a limit; visitors of a Space find a link to copy it."""
        return "" if self.who == "visitors" else _("; ask your teacher for more")


def budget_for(mode: Mode) -> Budget:
    """The budget of visitors or students."""
    return Budget(begins=N_("In this class"), who=N_("students")) if mode is Mode.CLASSROOM else Budget(begins=N_("On this Space"))


def _value(config: RunConfig, name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value
