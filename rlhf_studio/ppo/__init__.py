"""The mathematics of PPO for language models: pure functions on tensors, nothing else.

Notation, the same in every module:

- B episodes (one prompt with one response each), T response tokens, V tokens in the vocabulary.
- ``mask``: (B, T) bool. True = a token that the policy sampled, up to and including its first stop token. One mask, one
  meaning. The slots it hides may hold anything, NaN included: they change neither a result nor a gradient.
- ``logprobs``, ``ref_logprobs``, ``kl``, ``entropy``: (B, T) float32, in nats. ``values``, ``rewards``, ``advantages``,
  ``returns``: (B, T) float32, in units of the score. ``scores``: (B,) float32.
- All (B, T) arguments of one call have the same shape. Shapes that would silently broadcast are refused with a ValueError (those
  that cannot, by torch with a RuntimeError).
- No prefix = when the response was sampled; ``new_`` = under the policy being trained; ``ref_`` = under the reference.

One PPO step reads in this order: ``logprobs`` → ``kl`` → ``rewards`` → ``advantages`` → ``objective`` (which calls ``losses`` and
``diagnostics``), and ``kl_control`` sets the price of KL for the next step. ``masking`` is what they all stand on.

The algorithms without a critic differ from PPO in three places: in the ``advantages`` (there are no ``values`` and no ``returns`` then;
they are None, never 0), in the ratio that :func:`policy_loss` clips, and in the ``averages`` that make one number of all tokens' losses:

    PPO          gae                    ratio of a token      mean over the tokens
    REINFORCE    reinforce_advantages   one pass over the batch, so that the ratio is 1
    RLOO         rloo_advantages        ratio of a token      mean over the tokens
    GRPO         grpo_advantages        ratio of a token      mean over each response, then over the responses
    Dr. GRPO     dr_grpo_advantages     ratio of a token      sum over the tokens, divided by a constant
    DAPO         grpo_advantages        ratio of a token      mean over the tokens; a larger upper clip range
    GSPO         grpo_advantages        ratio of a response   mean over the responses
"""

from .advantages import (
    Advantages,
    dr_grpo_advantages,
    estimate_advantages,
    gae,
    grpo_advantages,
    reinforce_advantages,
    rloo_advantages,
    scale_to_unit_variance,
    whiten,
)
from .averages import loss_divisor, token_weights
from .diagnostics import UpdateSums, explained_variance
from .kl import full_kl, kl_per_token
from .kl_control import AdaptiveKL, FixedKL
from .logprobs import log_distribution, token_logprobs, token_logprobs_and_entropy
from .losses import PolicyLoss, ValueLoss, entropy_bonus, kl_loss, policy_loss, value_loss
from .masking import masked_mean, masked_select, masked_sum, masked_var
from .objective import Minibatch, NewPass, Objective, ObjectiveSettings, ppo_objective
from .rewards import RunningMoments, scale_scores, shape_rewards

__all__ = [
    "AdaptiveKL",
    "Advantages",
    "FixedKL",
    "Minibatch",
    "NewPass",
    "Objective",
    "ObjectiveSettings",
    "PolicyLoss",
    "RunningMoments",
    "UpdateSums",
    "ValueLoss",
    "dr_grpo_advantages",
    "entropy_bonus",
    "estimate_advantages",
    "explained_variance",
    "full_kl",
    "gae",
    "grpo_advantages",
    "kl_loss",
    "kl_per_token",
    "log_distribution",
    "loss_divisor",
    "masked_mean",
    "masked_select",
    "masked_sum",
    "masked_var",
    "policy_loss",
    "ppo_objective",
    "reinforce_advantages",
    "rloo_advantages",
    "scale_scores",
    "scale_to_unit_variance",
    "shape_rewards",
    "token_logprobs",
    "token_logprobs_and_entropy",
    "token_weights",
    "value_loss",
    "whiten",
]
