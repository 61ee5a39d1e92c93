"""The exact tiny world: so few responses that every expectation of PPO can be computed by enumeration.

Vocabulary of six (pad, eos, four words), responses of at most three tokens, a random reference policy, and a fixed random
score for every (prompt, response). Nothing here uses the engine's maths.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

WORDS = ["a", "b", "c", "d"]
EOS, VOCABULARY, LONGEST = 1, 6, 3
PROMPTS = ["a", "b c a"]


def all_responses() -> list[tuple[int, ...]]:
    """Every response that sampling can give: it ends at the first eos or at the limit."""
    others = [token for token in range(VOCABULARY) if token != EOS]
    ended = [(*body, EOS) for length in range(LONGEST) for body in itertools.product(others, repeat=length)]
    return ended + list(itertools.product(others, repeat=LONGEST))


RESPONSES = all_responses()
PLACE = {response: index for index, response in enumerate(RESPONSES)}


def score_table(seed: int) -> Tensor:
    """(prompts, responses) fixed scores in about -2 to 2."""
    return torch.randn(len(PROMPTS), len(RESPONSES), generator=torch.Generator().manual_seed(1000 + seed))


@dataclass(frozen=True)
class Exact:
    """Exact quantities of a policy: probabilities and log-probabilities of every response, each (prompts, responses)."""

    policy: Tensor
    reference: Tensor
    policy_tokens: Tensor  # (prompts, responses, LONGEST) token log-probabilities, 0 after the end
    reference_tokens: Tensor
    scores: Tensor
    beta: float

    def kl(self) -> Tensor:
        """(prompts,) exact KL of the response distributions."""
        return (self.policy.exp() * (self.policy - self.reference)).sum(dim=1)

    def objective(self) -> float:
        """J = E[score] - beta KL, averaged over prompts."""
        return float(((self.policy.exp() * self.scores).sum(dim=1) - self.beta * self.kl()).mean())

    def optimum(self) -> float:
        """J* = beta log E_ref[exp(score / beta)], averaged over prompts."""
        return float((self.beta * torch.logsumexp(self.reference + self.scores / self.beta, dim=1)).mean())

    def reference_objective(self) -> float:
        """J of the reference itself."""
        return float((self.reference.exp() * self.scores).sum(dim=1).mean())

    def values(self) -> dict[tuple[int, tuple[int, ...]], float]:
        """Exact value of every prefix: expected score and KL charges from there on."""
        charges = -self.beta * (self.policy_tokens - self.reference_tokens)
        weight: dict[tuple[int, tuple[int, ...]], float] = {}
        total: dict[tuple[int, tuple[int, ...]], float] = {}
        for prompt in range(len(PROMPTS)):
            for index, response in enumerate(RESPONSES):
                probability = float(self.policy[prompt, index].exp())
                for start in range(len(response)):
                    key = (prompt, response[:start])
                    earned = float(charges[prompt, index, start : len(response)].sum() + self.scores[prompt, index])
                    weight[key] = weight.get(key, 0.0) + probability
                    total[key] = total.get(key, 0.0) + probability * earned
        return {key: total[key] / weight[key] for key in weight}
