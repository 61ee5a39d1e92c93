"""Over what the loss of a minibatch is a mean: what each token counts, and by what the sum of all is divided.

The loss of a token is the same in PPO, GRPO, DAPO and Dr. GRPO; they differ in how the losses of N responses of lengths |o_i| become one
number. Written with ℓ[i, t] for the loss of token t of response i:

    tokens       Σ_i Σ_t ℓ[i, t] / Σ_i |o_i|          every token counts the same; a long response counts more (PPO; DAPO)
    responses    Σ_i (Σ_t ℓ[i, t] / |o_i|) / N        every response counts the same; a token of a long one counts less (GRPO, GSPO)
    constant     Σ_i Σ_t ℓ[i, t] / (N · L)            every token counts the same, whatever the other responses' lengths (Dr. GRPO)

L is the longest response that may be written. With ``responses`` a wrong answer is punished less per token the longer it is; Dr. GRPO's
constant takes that away, and DAPO's mean over the tokens does so up to a factor that is one number for the whole minibatch.

Sources: Shao et al. 2024, arXiv:2402.03300, eq. 3 (responses); Yu et al. 2025, arXiv:2503.14476, eq. 12 (tokens); Liu et al. 2025,
arXiv:2503.20783, section 3 and its appendix with the code (constant).
"""

from __future__ import annotations

import torch

AVERAGES = ("tokens", "responses", "constant")


def token_weights(mask: torch.Tensor, average: str) -> torch.Tensor | None:
    """(B, T) what each token's loss counts in the sum, 0 behind the mask; None where each counts 1.

    A response may come in a micro-batch of its own: the weights of its tokens depend on no other response.

    Args:
        mask: (B, T) bool, True = response token.
        average: one of :data:`AVERAGES`.

    Raises:
        ValueError: there is no such average.
    """
    _check(average)
    return mask / mask.sum(dim=1, keepdim=True).clamp(min=1) if average == "responses" else None


def loss_divisor(mask: torch.Tensor, average: str, longest: int) -> int:
    """By what the weighted sum over a *whole* minibatch is divided.

    Args:
        mask: (B, T) bool of all B responses of the minibatch, True = response token.
        average: one of :data:`AVERAGES`.
        longest: L, tokens; counts only with ``constant``.

    Raises:
        ValueError: there is no such average, or ``constant`` has no length of at least one token.
    """
    _check(average)
    if average == "constant" and longest < 1:
        raise ValueError(f"the constant average divides by the longest response that may be written: at least 1 token, got {longest}")
    return {"tokens": int(mask.sum()), "responses": len(mask), "constant": len(mask) * longest}[average]


def _check(average: str) -> None:
    if average not in AVERAGES:
        raise ValueError(f"the average must be {', '.join(AVERAGES[:-1])} or {AVERAGES[-1]}, got {average!r}")
