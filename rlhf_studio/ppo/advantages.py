"""How much better a token turned out than was expected, and the scaling of that number over a batch.

A critic predicts what to expect at each token (:func:`gae`). Without a critic, a response is compared with others, and all of its tokens
get the same number: with the other responses to its prompt (:func:`rloo_advantages`, :func:`grpo_advantages`, :func:`dr_grpo_advantages`),
or with all responses of the batch (:func:`reinforce_advantages`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from .masking import masked_mean, masked_select, masked_var

EPSILON = 1e-8  # inside the square root, as in OpenAI's and TRL's whitening: equal values give 0, not NaN
GROUP_EPSILON = 1e-4  # beside the standard deviation of a group, as in TRL's GRPOTrainer: equal scores give 0, not NaN


class Advantages(NamedTuple):
    """What an update learns from, each (B, T) and 0 behind the mask.

    Attributes:
        advantages: A_t in score units.
        whitened: what the policy's loss uses: A_t with mean 0 and variance 1 over the batch, or A_t as it is.
        returns: R_t = A_t + V_t in score units, the critic's target; None without a critic.
        deltas: δ_t in score units; None without a critic.
    """

    advantages: torch.Tensor
    whitened: torch.Tensor
    returns: torch.Tensor | None
    deltas: torch.Tensor | None


def estimate_advantages(
    rewards: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, gamma: float, lam: float, *, whitening: bool = True
) -> Advantages:
    """From rewards and values to what an update learns from: :func:`gae`, then :func:`whiten` unless ``whitening`` is off.

    Arguments as for :func:`gae`. The returns come from the advantages before whitening.
    """
    advantages, returns, deltas = gae(rewards, values, mask, gamma, lam)
    return Advantages(advantages, whiten(advantages, mask) if whitening else advantages, returns, deltas)


def gae(
    rewards: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, gamma: float, lam: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Generalised advantage estimation, from the last token back to the first.

        δ_t = r_t + γ V_{t+1} − V_t          one step's surprise; V after the last response token is 0
        A_t = δ_t + γλ A_{t+1}               surprises to come, fading by γλ per token
        R_t = A_t + V_t                      what the critic should have said

    λ = 0 trusts the critic (A = δ); λ = 1 trusts only what was earned (A = Σ γᵏ r_{t+k} − V_t).

    Args:
        rewards: (B, T) in score units.
        values: (B, T) the critic's V_t before token t is sampled, in score units.
        mask: (B, T) bool, True = response token; each row's real tokens stand at its start, without gaps.
        gamma: discount γ in [0, 1] per token.
        lam: λ in [0, 1].

    Returns:
        (advantages, returns, deltas), each (B, T) in score units and 0 behind the mask. Returns use the advantages as they
        are here, before any whitening.

    Raises:
        ValueError: a mask has a gap or starts late: credit would pass through slots that belong to no token.

    Source: Schulman et al. 2015, arXiv:1506.02438, eq. 16.
    """
    if (mask[:, 1:] & ~mask[:, :-1]).any():
        raise ValueError("the mask has a gap: each row's real tokens must stand at its start, one after the other")
    values = masked_select(values, mask)  # so that V after the last token is 0
    next_values = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)
    deltas = masked_select(rewards + gamma * next_values - values, mask)

    advantage = torch.zeros_like(deltas[:, 0])  # (B,), A after the end
    newest_first = []
    for delta in deltas.unbind(dim=1)[::-1]:
        advantage = delta + gamma * lam * advantage
        newest_first.append(advantage)
    advantages = torch.stack(newest_first[::-1], dim=1)
    return advantages, advantages + values, deltas


def rloo_advantages(rewards: torch.Tensor, mask: torch.Tensor, responses_per_prompt: int) -> torch.Tensor:
    """REINFORCE leave-one-out: how much more a response earned than the other responses to its prompt did on average.

        R_i = Σ_t r[i, t]                            the score, less what the response pays for its KL
        A_i = R_i − mean of R_j over the G − 1 others of the prompt, j ≠ i

    The others' mean does not depend on response i, so the gradient stays unbiased; R_i less the mean of all G would be (G − 1) / G of it.

    Args:
        rewards: (B, T) in score units, as :func:`~rlhf_studio.ppo.rewards.shape_rewards` gives them.
        mask: (B, T) bool, True = response token.
        responses_per_prompt: G ≥ 2. The G responses to a prompt stand one after the other, and G divides B.

    Returns:
        (B, T) in score units: A_i at each token of response i, 0 behind the mask. The advantages of a prompt's responses add up to 0.

    Raises:
        ValueError: there is no other response to a prompt, the responses are not whole groups, or the shapes differ.

    Source: Ahmadian et al. 2024, "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs",
    arXiv:2402.14740.
    """
    groups = _in_groups(_earned(rewards, mask), responses_per_prompt)
    others = (groups.sum(dim=1, keepdim=True) - groups) / (responses_per_prompt - 1)
    return _at_each_token(groups - others, mask)


def grpo_advantages(scores: torch.Tensor, mask: torch.Tensor, responses_per_prompt: int) -> torch.Tensor:
    """Group-relative advantages: by how many standard deviations a response's score is above the mean score of its prompt's responses.

        A_i = (score_i − mean of the group) / (std of the group + 1e-4)

    The KL is no part of it: GRPO adds β·k3 to the loss (:func:`~rlhf_studio.ppo.losses.kl_loss`).

    Args:
        scores: (B,) one score per response.
        mask: (B, T) bool, True = response token.
        responses_per_prompt: G ≥ 2. The G responses to a prompt stand one after the other, and G divides B.

    Returns:
        (B, T) without unit: A_i at each token of response i, 0 behind the mask. Responses to a prompt that all have one score get 0: they
        teach nothing. The standard deviation is the sample one (n − 1).

    Raises:
        ValueError: there is no other response to a prompt, the responses are not whole groups, or there are not B scores.

    Source: Shao et al. 2024, "DeepSeekMath", arXiv:2402.03300, section 4.1.2 (outcome supervision); the 1e-4 is TRL's.
    """
    groups = _scores_in_groups(scores, mask, responses_per_prompt)
    centred = groups - groups.mean(dim=1, keepdim=True)
    return _at_each_token(centred / (groups.std(dim=1, keepdim=True) + GROUP_EPSILON), mask)


def dr_grpo_advantages(scores: torch.Tensor, mask: torch.Tensor, responses_per_prompt: int) -> torch.Tensor:
    """GRPO "done right": a response's score less the mean score of its prompt's responses, and no division.

        A_i = score_i − mean of the group

    GRPO's division by the standard deviation makes every prompt teach equally much: one whose responses hardly differ as much as any
    other. Without it a prompt teaches as much as its scores differ. A_i is (G − 1) / G of RLOO's, but for the KL, which RLOO charges.

    Arguments and errors as for :func:`grpo_advantages`.

    Returns:
        (B, T) in units of the score: A_i at each token of response i, 0 behind the mask.

    Source: Liu et al. 2025, "Understanding R1-Zero-Like Training: A Critical Perspective", arXiv:2503.20783, section 3.2.
    """
    groups = _scores_in_groups(scores, mask, responses_per_prompt)
    return _at_each_token(groups - groups.mean(dim=1, keepdim=True), mask)


def reinforce_advantages(rewards: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """REINFORCE with a baseline: how much more a response earned than the responses of the batch did on average.

        R_i = Σ_t r[i, t]                            the score, less what the response pays for its KL
        A_i = R_i − mean of all R_j of the batch

    An easy prompt makes all of its responses look good, and a hard one all of them bad: that is what comparing within a prompt mends. The
    mean holds R_i itself, so the gradient is (B − 1) / B of the unbiased one.

    Args:
        rewards: (B, T) in score units, as :func:`~rlhf_studio.ppo.rewards.shape_rewards` gives them.
        mask: (B, T) bool, True = response token.

    Returns:
        (B, T) in score units: A_i at each token of response i, 0 behind the mask.

    Raises:
        ValueError: there is no other response, or the shapes differ.

    Source: Williams 1992, "Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning", section 4 (the
    baseline); for language models Ahmadian et al. 2024, arXiv:2402.14740, section 2.2.
    """
    batch = _in_groups(_earned(rewards, mask), len(mask))
    return _at_each_token(batch - batch.mean(), mask)


def _earned(rewards: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B,) what each response earned: the sum of its tokens' rewards."""
    if rewards.shape != mask.shape:
        raise ValueError(f"rewards has shape {tuple(rewards.shape)} but the mask has shape {tuple(mask.shape)}; they must be equal")
    return masked_select(rewards, mask).sum(dim=1)


def _scores_in_groups(scores: torch.Tensor, mask: torch.Tensor, responses_per_prompt: int) -> torch.Tensor:
    """(B / G, G) scores, a row for each prompt."""
    if scores.shape != mask.shape[:1]:
        raise ValueError(f"scores has shape {tuple(scores.shape)} but the mask has {len(mask)} responses; each needs one score")
    return _in_groups(scores, responses_per_prompt)


def _in_groups(x: torch.Tensor, responses_per_prompt: int) -> torch.Tensor:
    """(B,) numbers as (B / G, G), a row for each prompt."""
    if responses_per_prompt < 2:
        raise ValueError(f"a response is compared with others: at least 2 responses per prompt or batch, got {responses_per_prompt}")
    if len(x) % responses_per_prompt:
        raise ValueError(f"{len(x)} responses are no whole groups of {responses_per_prompt} for each prompt")
    return x.reshape(-1, responses_per_prompt)


def _at_each_token(groups: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B / G, G) numbers, one for each response, as (B, T): each token gets its response's number; 0 behind the mask."""
    return masked_select(groups.flatten().to(mask.device).unsqueeze(1), mask)


def whiten(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Shift and scale to mean 0 and variance 1: (x − mean) / sqrt(var + 1e-8). What PPO does to advantages.

    Args:
        x: (B, T).
        mask: (B, T) bool. Mean and sample variance (n − 1) are taken over all its real tokens together.

    Returns:
        (B, T) without unit; 0 behind the mask. A lone token has nothing to be compared with and becomes 0.

    Raises:
        ValueError: the mask is empty.

    Source: Huang et al. 2024, "The N+ Implementation Details of RLHF with PPO", arXiv:2403.17031.
    """
    return masked_select(_centred_to_unit_variance(x, mask), mask)


def scale_to_unit_variance(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Scale to variance 1 around an unchanged mean: (x − mean) / sqrt(var + 1e-8) + mean. The option for rewards.

    Rewards keep their mean, because moving it would pay or charge for every further token and so change what the best
    response length is.

    Args:
        x: (B, T).
        mask: (B, T) bool. Mean and sample variance (n − 1) are taken over all its real tokens together.

    Returns:
        (B, T); 0 behind the mask, where adding the mean would invent rewards after the end. A lone token is unchanged.

    Raises:
        ValueError: the mask is empty.

    Source: Huang et al. 2024, "The N+ Implementation Details of RLHF with PPO", arXiv:2403.17031.
    """
    return masked_select(_centred_to_unit_variance(x, mask) + masked_mean(x, mask), mask)


def _centred_to_unit_variance(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(x − mean) / sqrt(var + 1e-8); the variance of a lone token counts as 0. Results behind the mask have no meaning."""
    centred = masked_select(x, mask) - masked_mean(x, mask)
    variance = masked_var(x, mask) if mask.sum() > 1 else centred.new_zeros(())
    return centred * torch.rsqrt(variance + EPSILON)
