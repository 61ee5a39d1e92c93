"""The bundled review world for the lessons: policy, tokenizer, reward model and gold, loaded by the engine's own functions.

Results are remembered, because the models read the same text again and again while a control moves. Nothing here changes the models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlhf_studio.analysis.reward_model.pairs import ScoredPairs
from rlhf_studio.config import RewardConfig, RewardModelReward
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.models.critic import make_value_head
from rlhf_studio.engine.models.heads import draw_head
from rlhf_studio.engine.models.load_model import classifier_of, load_causal_lm
from rlhf_studio.engine.models.policy import Policy
from rlhf_studio.engine.padding import pad_right
from rlhf_studio.engine.rewards.kinds.reward_model import RewardModelScorer
from rlhf_studio.engine.rewards.scorer import Episodes, build_scorer
from rlhf_studio.engine.text import token_pieces
from rlhf_studio.inputs.world.corpus import EVAL_SEED, RatedPair, write_pairs
from rlhf_studio.inputs.world.gold import gold_score

POLICY, REWARD = "bundled/world-policy", "bundled/world-reward"
HELD_OUT_PAIRS = 200
"""Pairs that no model has learned from; enough for shares of a few per cent, and scored in about a second."""

Result = TypeVar("Result")


@dataclass(eq=False)
class World:
    """The review world's models. Use :func:`load_world`.

    Attributes:
        policy: the bundled language model as the engine's policy, with a value head that says 0.
        tokenizer: of all models here.
        judge: the bundled reward model as the engine asks it.
    """

    policy: Policy
    tokenizer: PreTrainedTokenizerBase
    judge: RewardModelScorer
    _known: dict[Any, Any] = field(default_factory=dict)

    def ids(self, text: str) -> list[int]:
        """The tokens of a text."""
        return list(self.tokenizer(text)["input_ids"])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text that each token adds."""
        return token_pieces(self.tokenizer, list(ids))

    def next_logits(self, text: str) -> Tensor:
        """(V,) float32 logits of the token after ``text``, by one decoding step of the policy. Change a copy, not these."""

        def ask() -> Tensor:
            ids = torch.tensor([self.ids(text)])
            attention = torch.ones_like(ids)
            return self.policy.next_logits(ids, attention, attention.cumsum(dim=1) - 1, self.policy.new_cache(ids.shape[1]))[0][0]

        return self.remember(("next", text), ask)

    def logits(self, ids: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """(B, L, V) logits of padded rows (B, L) with these position ids, by the plain model."""
        key = ("logits", *(tuple(map(tuple, x.tolist())) for x in (ids, mask, positions)))

        def ask() -> Tensor:
            with torch.no_grad():
                logits: Tensor = self.policy.model(
                    input_ids=ids, attention_mask=mask.long(), position_ids=positions, use_cache=False
                ).logits
            return logits

        return self.remember(key, ask)

    def scores(self, prompt: str, responses: Sequence[str]) -> list[float]:
        """What the reward model gives to finished responses to a prompt."""
        count = len(responses)
        episodes = Episodes([prompt] * count, list(responses), [True] * count, [len(self.ids(text)) for text in responses])
        return self.remember(("scores", prompt, *responses), lambda: self.judge(episodes).tolist())

    def prefix_scores(self, prompt: str, response: str) -> list[float]:
        """The reward model's score of a text as if it ended at each of its tokens, prompt included."""
        episodes = Episodes([prompt], [response], [True], [len(self.ids(response))])
        return self.remember(("prefixes", prompt, response), lambda: self.judge.prefix_scores(episodes) or [])

    @torch.no_grad()
    def judged(self, ids: Tensor, mask: Tensor, positions: Tensor) -> list[float]:
        """The reward model's head at every slot of the first of these padded rows (B, L)."""
        network: Any = self.judge.network
        states = network.base_model(input_ids=ids, attention_mask=mask.long(), position_ids=positions, use_cache=False).last_hidden_state
        scores: list[float] = network.score(states)[0, :, 0].tolist()
        return scores

    @cached_property
    def untrained(self) -> tuple[Any, Tensor, Tensor]:
        """A classifier on the policy's trunk, whose head is to be drawn, and the trunk's states at the ends of both sides of the pairs."""
        loaded = load_causal_lm(POLICY, "main", torch.float32, _silent)
        model: Any = classifier_of(loaded, POLICY, "model.policy").requires_grad_(False)
        sides = []
        for name in ("chosen", "rejected"):
            texts = [self.ids(pair.prompt + getattr(pair, name)) for pair in self.pairs]
            ids, mask = pad_right(texts, 0, "cpu"), pad_right([[1] * len(text) for text in texts], 0, "cpu")
            with torch.no_grad():
                states = model.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
            sides.append(states[torch.arange(len(texts)), mask.sum(dim=1) - 1])
        return model, sides[0], sides[1]

    @torch.no_grad()
    def head_margins(self, seed: int) -> Tensor:
        """(N,) what a head drawn by this seed gives to the preferred responses of the pairs, less what it gives to the others."""
        model, chosen, rejected = self.untrained
        draw_head(model.score, torch.Generator().manual_seed(seed))
        margins: Tensor = (model.score(chosen) - model.score(rejected))[:, 0]
        return margins

    def gold(self, prompt: str, response: str) -> float:
        """The world's own reward, from -1 to 1."""
        return gold_score(prompt, response)

    @cached_property
    def pairs(self) -> list[RatedPair]:
        """Rated pairs that no model has learned from."""
        return write_pairs(EVAL_SEED, HELD_OUT_PAIRS)

    @cached_property
    def scored_pairs(self) -> ScoredPairs:
        """The same pairs with the reward model's scores, and the lengths of the responses in tokens."""
        sides = [[(pair.prompt, pair.chosen) for pair in self.pairs], [(pair.prompt, pair.rejected) for pair in self.pairs]]
        lengths = [[len(self.ids(response)) for _, response in side] for side in sides]
        scores = [
            self.judge(Episodes([prompt for prompt, _ in side], [text for _, text in side], [True] * len(side), counts)).double().numpy()
            for side, counts in zip(sides, lengths, strict=True)
        ]
        numbers = np.arange(len(self.pairs))
        groups = tuple("" for _ in self.pairs)
        tokens = [np.asarray(counts, dtype=np.float64) for counts in lengths]
        return ScoredPairs(scores[0], scores[1], tokens[0], tokens[1], numbers, np.zeros(len(numbers), dtype=bool), groups)

    def remember(self, key: Any, ask: Callable[[], Result]) -> Result:
        """The result of ``ask``, which is called once for each key."""
        if key not in self._known:
            self._known[key] = ask()
        result: Result = self._known[key]
        return result


def load_world() -> World:
    """Load the bundled models, on the CPU and frozen."""
    compute = Compute(torch.device("cpu"), torch.float32)
    loaded = load_causal_lm(POLICY, "main", torch.float32, _silent)
    width = loaded.model.get_output_embeddings().weight.shape[1]
    policy = Policy(loaded.model, make_value_head(width, "zero", 0))
    settings = RewardConfig(components=[RewardModelReward(model=REWARD)], gold="world")
    ((_, judge),) = build_scorer(settings, compute, _silent).reward_models()
    return World(policy.requires_grad_(False), loaded.tokenizer, judge)


def _silent(_what: str, _share: float | None) -> None:
    """Nobody waits for this loading."""
