"""The algorithm's settings."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from rlhf_studio.config.base import Section, setting
from rlhf_studio.config.execution import GenerationConfig
from rlhf_studio.config.live import PlannedChange, read_schedule, schedule_problem
from rlhf_studio.language import S_

CRITIC_SETTINGS = (
    "critic_learning_rate", "gamma", "lam", "cliprange_value", "vf_coef", "whiten_advantages", "whiten_rewards", "critic_warmup_steps",
)  # fmt: skip
"""Settings of ``ppo`` that only a run with a critic uses. Another one takes no value of them but the default."""


class PPOConfig(Section):
    """How boldly the model learns. The defaults work."""

    steps: int = setting(
        60, "Steps", "Number of PPO steps; each samples one batch of responses and learns from it.", unit="steps", level="basic", ge=1,
        le=1_000_000,
    )  # fmt: skip
    batch_size: int = setting(64, "Batch size", "Responses sampled per step.", unit="episodes", level="basic", ge=1, le=65536)
    responses_per_prompt: int = setting(
        1, "Responses per prompt", "Each prompt of a batch is answered this many times; must divide the batch size.", unit="responses",
        ge=1, le=65536,
    )  # fmt: skip
    advantage: Literal["gae", "rloo", "grpo", "dr_grpo", "reinforce"] = setting(
        "gae",
        "Advantage",
        "gae: a critic says how much better each token turned out (PPO). The others have no critic and give all tokens of a response one "
        "number. rloo: its reward less the mean reward of the other responses to its prompt (arXiv:2402.14740). grpo: standard deviations "
        "of its score above the mean score of its prompt (arXiv:2402.03300). dr_grpo: the same without the division (arXiv:2503.20783). "
        "reinforce: its reward less the mean reward of the batch (Williams 1992).",
    )
    mini_batch_size: int = setting(
        32, "Mini-batch size", "Responses per optimizer step; must divide the batch size.", unit="episodes", level="basic", ge=1, le=65536
    )
    micro_batch_size: int = setting(
        0, "Micro-batch size",
        "Responses per forward pass; smaller needs less memory and changes nothing else. "
        "0 takes the mini-batch size; else a divisor of it.",
        unit="episodes", ge=0, le=65536,
    )  # fmt: skip
    ppo_epochs: int = setting(4, "PPO epochs", "Passes over each batch.", unit="passes", level="basic", ge=1, le=100)
    learning_rate: float = setting(1e-4, "Learning rate", "Step size of AdamW for the policy.", level="basic", gt=0, le=1)
    critic_learning_rate: float = setting(
        0.0,
        "Critic learning rate",
        "Step size of AdamW for the critic: the value head, and its own trunk when it has one; 0 takes the policy's.",
        ge=0,
        le=1,
    )
    lr_schedule: Literal["constant", "linear", "cosine"] = setting(
        "linear", "Schedule", "How the learning rate changes over the steps: constant, or falling to 0 linearly or as a cosine."
    )
    warmup_steps: int = setting(0, "Warm-up", "First steps, over which the learning rate rises from 0.", unit="steps", ge=0, le=1_000_000)
    weight_decay: float = setting(
        0.0, "Weight decay", "Share of the learning rate by which each optimizer step shrinks every weight that learns (AdamW).", ge=0, le=1
    )
    adam_epsilon: float = setting(1e-5, "Adam epsilon", "Term added to AdamW's denominator.", gt=0, le=1)
    max_grad_norm: float = setting(
        1.0, "Gradient clip", "A gradient with a larger norm is scaled down to this one; 0 does not clip.", ge=0, le=1e6
    )
    kl_coef: float = setting(
        0.1, "KL coefficient", "β: how much each token pays for moving away from the reference policy.", level="basic", ge=0, le=100
    )
    kl_controller: Literal["fixed", "adaptive"] = setting(
        "fixed", "KL controller", "fixed keeps β; adaptive raises or lowers it to hold the KL near the target.", level="basic"
    )
    kl_target: float = setting(
        6.0, "KL target", "The adaptive controller holds the mean KL per response near this.", unit="nats", level="basic", gt=0, le=10_000
    )
    kl_horizon: int = setting(
        10_000, "KL horizon",
        "Episodes over which the adaptive controller changes β; smaller reacts faster. Must be more than a fifth of the batch.",
        unit="episodes", ge=1, le=10_000_000,
    )  # fmt: skip
    kl_estimator: Literal["k1", "k2", "k3", "abs", "full"] = setting(
        "k1",
        "KL estimator",
        "With d = logprob − reference logprob: k1 = d, k2 = d²/2, k3 = exp(−d) − 1 + d, abs = |d|, full = exact sum over the vocabulary.",
    )
    kl_placement: Literal["reward", "loss"] = setting(
        "reward", "KL placement", "Charge the KL in the per-token reward, or add β·KL to the loss (k2 or k3 only)."
    )
    gamma: float = setting(1.0, "Discount γ", "Weight of the next token's value; 1 does not discount.", ge=0, le=1)
    lam: float = setting(0.95, "GAE λ", "0 trusts the value estimate fully, 1 only what was really earned.", ge=0, le=1)
    cliprange: float = setting(
        0.2, "Clip range ε", "The policy gains nothing from moving a token's probability ratio further than this from 1.", level="basic",
        gt=0, lt=1,
    )  # fmt: skip
    cliprange_high: float = setting(
        0.0,
        "Upper clip range",
        "A different ε above 1, DAPO's clip-higher (arXiv:2503.14476, eq. 10; 0.28 there); 0 takes the same as below.",
        ge=0,
        le=10,
    )
    ratio_level: Literal["token", "sequence"] = setting(
        "token",
        "Ratio",
        "What clipping limits. token: each token's probability ratio. sequence: one ratio for the whole response, the geometric mean of "
        "its tokens' ratios (GSPO, arXiv:2507.18071, eq. 7). That one moves far less: the paper clips at 0.0003 below and 0.0004 above.",
    )
    loss_average: Literal["tokens", "responses", "constant"] = setting(
        "tokens",
        "Loss average",
        "Over what the loss of a mini-batch is a mean. tokens: over all of its tokens (PPO; DAPO, arXiv:2503.14476, eq. 12). responses: "
        "over each response, then over the responses (GRPO, arXiv:2402.03300, eq. 3; GSPO). constant: the sum over the tokens, divided by "
        "the number of responses times generation.response_length (Dr. GRPO, arXiv:2503.20783).",
    )
    dual_clip: float = setting(
        0.0, "Dual clip", "For negative advantages the loss per token stays below this times |A|; must be above 1, or 0 for none.", ge=0,
        le=1000,
    )  # fmt: skip
    cliprange_value: float = setting(
        0.2, "Value clip range", "The value may move this far from the old value per step; 0 does not clip.", ge=0, le=1000
    )
    vf_coef: float = setting(0.1, "Value coefficient", "Weight of the value loss in the total loss.", ge=0, le=100)
    entropy_coef: float = setting(
        0.0, "Entropy bonus", "Weight of the entropy bonus; keeps the policy from becoming certain too early.", ge=0, le=10
    )
    whiten_advantages: bool = setting(True, "Whiten advantages", "Shift and scale advantages to mean 0 and variance 1 over the batch.")
    whiten_rewards: bool = setting(False, "Scale rewards", "Scale per-token rewards to variance 1 over the batch; the mean stays.")
    target_kl: float = setting(
        0.0, "Early stop KL",
        "Skip the rest of a step's passes once the policy moved more than 1.5 times this (approximate KL); 0 never stops.",
        unit="nats", ge=0, le=1000,
    )  # fmt: skip
    ratio_threshold: float = setting(
        10.0, "Ratio threshold", "A mini-batch whose mean ratio exceeds this is skipped; 0 never skips.", ge=0, le=1e6
    )
    reference_ema: float = setting(
        0.0, "Reference EMA",
        "Share of the policy that is mixed into the reference after each step, so that the reference follows slowly; 0 keeps it as it was.",
        ge=0, le=1,
    )  # fmt: skip
    critic_warmup_steps: int = setting(
        0, "Critic warm-up", "First steps in which only the critic learns.", unit="steps", ge=0, le=1_000_000
    )
    schedule: str = setting(
        "",
        "Planned changes",
        "Settings that change at a step, each as step, setting and value, separated by commas: 8 ppo.kl_coef 0.2, 20 ppo.learning_rate "
        "1e-5. Also generation.temperature and ppo.kl_target.",
        max_length=100_000,
    )

    @property
    def planned(self) -> list[PlannedChange]:
        """The changes in ``schedule``."""
        return read_schedule(self.schedule)

    @property
    def micro_batch(self) -> int:
        """Episodes in one forward pass of an update."""
        return self.micro_batch_size or self.mini_batch_size

    @property
    def has_critic(self) -> bool:
        """Whether values are learned: the other kinds of advantages need none."""
        return self.advantage == "gae"

    @property
    def in_groups(self) -> bool:
        """Whether a response is compared with the others to its own prompt."""
        return self.advantage in ("rloo", "grpo", "dr_grpo")

    @model_validator(mode="after")
    def _compares_responses(self) -> PPOConfig:
        """What the advantages without a critic need, and what they do not use."""
        if self.has_critic:
            if self.ratio_level == "sequence":
                raise ValueError(
                    "ratio_level: sequence needs one advantage for all tokens of a response, and advantage gae gives each token its own; "
                    "use token, or advantage grpo as GSPO does"
                )
            return self
        wrong = []
        if self.in_groups and self.responses_per_prompt < 2:
            wrong.append(
                S_(
                    f"responses_per_prompt: {self.responses_per_prompt} gives advantage {self.advantage} nothing to compare a response "
                    "with; use at least 2"
                )
            )
        if self.advantage == "reinforce" and self.batch_size < 2:
            wrong.append(S_("batch_size: 1 gives advantage reinforce nothing to compare a response with; use at least 2"))
        of_scores = self.advantage in ("grpo", "dr_grpo")
        if of_scores and self.kl_placement != "loss":
            wrong.append(S_(f"kl_placement: advantage {self.advantage} charges the KL in the loss; use loss, with kl_estimator k3"))
        if of_scores and self.kl_estimator != "k3":
            wrong.append(S_(f"kl_estimator: advantage {self.advantage} charges the KL as k3, not {self.kl_estimator}; use k3"))
        for name in CRITIC_SETTINGS:
            default = type(self).model_fields[name].default
            if getattr(self, name) != default:
                wrong.append(
                    S_(f"{name}: advantage {self.advantage} has no critic and does not use this; leave it at {_as_in_yaml(default)}")
                )
        if wrong:
            raise ValueError("\n".join(wrong))
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> PPOConfig:
        if self.mini_batch_size > self.batch_size:
            raise ValueError(
                f"mini_batch_size: {self.mini_batch_size} is larger than batch_size {self.batch_size}; use at most the batch size"
            )
        if self.batch_size % self.mini_batch_size:
            raise ValueError(f"mini_batch_size: {self.mini_batch_size} does not divide batch_size {self.batch_size}; use a divisor of it")
        if self.batch_size % self.responses_per_prompt:
            raise ValueError(
                f"responses_per_prompt: {self.responses_per_prompt} does not divide batch_size {self.batch_size}; use a divisor of it"
            )
        if self.micro_batch_size and self.mini_batch_size % self.micro_batch_size:
            raise ValueError(
                f"micro_batch_size: {self.micro_batch_size} does not divide mini_batch_size {self.mini_batch_size}; use a divisor of it"
            )
        if self.dual_clip and self.dual_clip <= 1:
            raise ValueError(f"dual_clip: {self.dual_clip} must be above 1, or 0 for none")
        if self.kl_placement == "loss" and self.kl_estimator not in ("k2", "k3"):
            raise ValueError(f"kl_estimator: {self.kl_estimator} cannot be used in the loss; use k2 or k3 with kl_placement loss")
        if self.kl_controller == "adaptive" and self.kl_horizon <= 0.2 * self.batch_size:  # β would reach 0 in one step
            shortest = self.batch_size // 5 + 1
            raise ValueError(f"kl_horizon: {self.kl_horizon} is too short for batches of {self.batch_size}; use at least {shortest}")
        if problem := schedule_problem(self.schedule, {"ppo": PPOConfig, "generation": GenerationConfig}, self.kl_controller):
            raise ValueError(f"schedule: {problem}")
        return self


def _as_in_yaml(value: bool | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
