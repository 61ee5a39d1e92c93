"""Which settings make which algorithm, and what a batch must have for it.

All algorithms learn with the run's own learning rate, passes, mini-batches and price of KL, so that what differs is the algorithm. Its
clip ranges are the published ones where it is known for them (DAPO, GSPO).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlhf_studio.config import PPOConfig, RunConfig
from rlhf_studio.config.ppo import CRITIC_SETTINGS
from rlhf_studio.config.run import CRITIC_SETTINGS_ELSEWHERE
from rlhf_studio.language import S_

IN_REWARD = {"kl_placement": "reward", "kl_estimator": "k1"}
IN_LOSS = {"kl_placement": "loss", "kl_estimator": "k3"}
USUAL_CLIP = 0.2
NO_GROUPS = S_("each prompt of this run has one response, with nothing to compare it with (train with ppo.responses_per_prompt 4, say)")
NO_CRITIC = S_("this run has no critic, whose values are needed (train with ppo.advantage gae)")
ALONE = S_("a batch of one response has nothing to compare it with")


@dataclass(frozen=True)
class Algorithm:
    """An algorithm by its published name.

    Attributes:
        name: a short word for files.
        title: its name for people.
        source: the paper.
        settings: of the section ``ppo``, where it does not take the run's own.
    """

    name: str
    title: str
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_critic(self) -> bool:
        """Whether it learns from a critic's values."""
        return bool(self.settings["advantage"] == "gae")


ALGORITHMS = (
    Algorithm("ppo", "PPO", "Schulman et al. 2017, arXiv:1707.06347", {"advantage": "gae", "ratio_level": "token"}),
    Algorithm("reinforce", "REINFORCE", "Williams 1992", {**IN_REWARD, "advantage": "reinforce", "ppo_epochs": 1}),
    Algorithm("rloo", "RLOO", "Ahmadian et al. 2024, arXiv:2402.14740", {**IN_REWARD, "advantage": "rloo"}),
    Algorithm("grpo", "GRPO", "Shao et al. 2024, arXiv:2402.03300", {**IN_LOSS, "advantage": "grpo", "loss_average": "responses"}),
    Algorithm("dr_grpo", "Dr. GRPO", "Liu et al. 2025, arXiv:2503.20783", {**IN_LOSS, "advantage": "dr_grpo", "loss_average": "constant"}),
    Algorithm("dapo", "DAPO", "Yu et al. 2025, arXiv:2503.14476", {**IN_LOSS, "advantage": "grpo", "cliprange_high": 0.28}),
    Algorithm(
        "gspo",
        "GSPO",
        "Zheng et al. 2025, arXiv:2507.18071",
        {
            **IN_LOSS,
            **{"advantage": "grpo", "ratio_level": "sequence", "loss_average": "responses", "cliprange": 3e-4, "cliprange_high": 4e-4},
        },
    ),
)
"""In the order in which they are shown."""


def why_not(algorithm: Algorithm, config: RunConfig) -> str:
    """Why the batches of a run with these settings do not suit an algorithm, as a clause; empty when they do."""
    if algorithm.has_critic:
        return "" if config.ppo.has_critic else NO_CRITIC
    if algorithm.settings["advantage"] == "reinforce":
        return "" if config.ppo.batch_size > 1 else ALONE
    return "" if config.ppo.responses_per_prompt > 1 else NO_GROUPS


def settings_of(algorithm: Algorithm, config: RunConfig) -> RunConfig:
    """The run's settings, changed to those of an algorithm that suits it.

    PPO's are the run's own. The others take no other setting of a critic than the default, and clip as their papers do.
    """
    if algorithm.has_critic:
        return config
    data = config.model_dump(mode="json")
    defaults = {name: PPOConfig.model_fields[name].default for name in CRITIC_SETTINGS}
    own_clip = config.ppo.cliprange if config.ppo.ratio_level == "token" else USUAL_CLIP
    plain = {"ratio_level": "token", "loss_average": "tokens", "cliprange": own_clip, "cliprange_high": 0.0, "dual_clip": 0.0}
    data["ppo"] |= {**defaults, **plain, **algorithm.settings}
    if algorithm.name == "reinforce":  # one step on the whole batch: the ratio is 1, and nothing is clipped
        micro = config.ppo.micro_batch
        data["ppo"] |= {"mini_batch_size": config.ppo.batch_size, "micro_batch_size": micro}
    for name in CRITIC_SETTINGS_ELSEWHERE:
        section, _, setting = name.partition(".")
        data[section].pop(setting, None)
    return RunConfig.model_validate(data)
