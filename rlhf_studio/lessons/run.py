"""The lesson run, unpacked and loaded: a recorded PPO run with the policy of each of its steps, which can read any text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rlhf_studio.config import RunConfig
from rlhf_studio.config.bundled import ADAPTERS, LESSON_RUN, RECORDED, VALUE_HEAD, WITHOUT_KL
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.loop.build import with_lora
from rlhf_studio.engine.models.adapters import adapter_weights, sharing
from rlhf_studio.engine.models.critic import make_value_head
from rlhf_studio.engine.models.forward import ForwardPass
from rlhf_studio.engine.models.load_model import LoadedModel, load_causal_lm
from rlhf_studio.engine.models.policy import Policy, ResponseModel
from rlhf_studio.engine.models.reference import LoadedReference
from rlhf_studio.engine.padding import pad_left, pad_right
from rlhf_studio.engine.rewards.episodes import Episodes
from rlhf_studio.engine.rewards.scorer import Scorer, build_scorer
from rlhf_studio.engine.types import ForwardOutput, TokenBatch
from rlhf_studio.lessons.what_if import RecordedStep, recorded
from rlhf_studio.ppo.logprobs import log_distribution
from rlhf_studio.runs.finding.unpack import Bundle, unpack
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import StepEpisodes


@dataclass(frozen=True)
class Sample:
    """A recorded response: its texts and ids, what it earned, and how many tokens it has."""

    prompt: str
    response: str
    prompt_ids: list[int]
    ids: list[int]
    pieces: list[str]
    score: float
    gold: float
    stopped: bool


def tokens_of(episodes: StepEpisodes) -> Iterator[tuple[list[int], list[str]]]:
    """The ids and the texts of each episode's tokens, one episode after the other."""
    ids = iter(episodes.response_ids.tolist())
    for length in episodes.lengths.tolist():
        own = list(islice(ids, length))
        yield own, [episodes.pieces.get(token, "\ufffd") for token in own]


@cache
def lesson_run() -> LessonRun:
    """The bundled run. Raises :class:`~rlhf_studio.runs.finding.unpack.DamagedBundle`."""
    return LessonRun(unpacked(LESSON_RUN))


class LessonRun:
    """A run of the review world with small LoRA adapters, of which every step's policy was kept.

    Attributes:
        reader: the run as any run is read. Step s sampled with the policy after step s - 1; the policy of step 0 is the reference.
        without_kl: the same run with a KL coefficient of 0: its policies were not kept.
        config: its settings.
        steps: how many there are.
    """

    def __init__(self, folder: Path):
        self.reader, self.without_kl = RunReader(folder / RECORDED), RunReader(folder / WITHOUT_KL)
        config = self.reader.config()
        assert isinstance(config, RunConfig)
        self.config = config
        self.steps = config.ppo.steps
        self._weights = load_file(folder / ADAPTERS)
        self._compute = Compute(torch.device("cpu"), torch.float32)

    # --- what was recorded ---------------------------------------------------------------------------------------------------

    @cache  # noqa: B019 - there is one run, for the life of the process
    def recorded(self, step: int, *, without_kl: bool = False) -> RecordedStep:
        """The numbers of all episodes of a step, 1 to ``steps``, and its settings."""
        return recorded(self.without_kl if without_kl else self.reader, step)

    @cache  # noqa: B019
    def samples(self, step: int, *, without_kl: bool = False) -> list[Sample]:
        """All episodes of a step, as texts and tokens."""
        reader = self.without_kl if without_kl else self.reader
        episodes, rollouts = reader.episodes(step)[step], reader.rollouts(step)
        samples = []
        for rollout, (ids, pieces), stopped in zip(rollouts, tokens_of(episodes), episodes.stopped.tolist(), strict=True):
            prompt_ids = self.prompt_ids(rollout.prompt)
            gold = float("nan") if rollout.gold is None else rollout.gold
            samples.append(Sample(rollout.prompt, rollout.response, prompt_ids, ids, pieces, rollout.score, gold, stopped))
        return samples

    def curve(self, metric: str, *, without_kl: bool = False) -> list[float]:
        """A metric of each step, such as ``gold/score``."""
        values: list[float] = (self.without_kl if without_kl else self.reader).columns([metric])[1][metric].tolist()
        return values

    # --- what its models say ---------------------------------------------------------------------------------------------------

    @cached_property
    def _loaded(self) -> LoadedModel:
        loaded = load_causal_lm(self.config.model.policy, self.config.model.revision, torch.float32, _silent)
        loaded.model.requires_grad_(False)
        return loaded

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return self._loaded.tokenizer

    @cached_property
    def reference(self) -> ResponseModel:
        """The frozen model that the policy started as."""
        return ResponseModel(sharing(self._loaded.model)).eval()

    @cached_property
    def scorer(self) -> Scorer:
        """The reward model, and the gold score."""
        return build_scorer(self.config.reward, self._compute, _silent)

    def policy(self, step: int) -> Policy:
        """The policy after a step, with the value head of that step; 0 is the start. Raises ValueError for a step that there is not."""
        policy = self._new_policy()
        self._set(policy, step)
        return policy

    def _new_policy(self) -> Policy:
        model = with_lora(sharing(self._loaded.model), self.config, self._loaded, LoadedReference())
        head = make_value_head(self._loaded.model.get_output_embeddings().weight.shape[1], "zero", 0)
        return Policy(model, head).requires_grad_(False)

    @torch.no_grad()
    def _set(self, policy: Policy, step: int) -> None:
        if not 0 <= step <= self.steps:
            raise ValueError(f"the lesson run has the steps 0 to {self.steps}, not {step}")
        model: Any = policy.model
        for name, weight in adapter_weights(model).items():
            weight.copy_(self._weights[name][step])
        heads = {name.removeprefix(VALUE_HEAD): weight[step] for name, weight in self._weights.items() if name.startswith(VALUE_HEAD)}
        assert policy.value_head is not None
        policy.value_head.load_state_dict(heads)

    @cached_property
    def _reused_policy(self) -> Policy:
        return self._new_policy()

    def _at(self, step: int) -> Policy:
        """The policy of a step. One policy serves all steps and takes over the weights of each: quicker than a new one."""
        self._set(self._reused_policy, step)
        return self._reused_policy

    def prompt_ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def batch(self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> TokenBatch:
        """Prompts and responses as the engine's models read them."""
        prompt_ids, prompt_mask = pad_left([list(prompt) for prompt in prompts], 0)
        lengths = torch.tensor([len(response) for response in responses])
        ids = pad_right(responses, 0, "cpu")
        return TokenBatch(prompt_ids, prompt_mask, ids, torch.arange(ids.shape[1]) < lengths[:, None])

    def read(self, step: int, tokens: TokenBatch) -> ForwardOutput:
        """Log-probabilities, entropy and values under the policy of a step, each (B, T)."""
        policy = self._at(step)
        return self._forward.run(policy, tokens, 0, critic=policy)

    def read_reference(self, tokens: TokenBatch) -> Tensor:
        """Log-probabilities (B, T) under the reference."""
        return self._forward.run(self.reference, tokens, 0).logprobs

    @torch.no_grad()
    def distributions(self, step: int, tokens: TokenBatch) -> Tensor:
        """Log-probabilities (N, V) of the whole vocabulary before each of the N response tokens, in the order of ``tokens.mask``."""
        return log_distribution(self._at(step)(tokens)[0], self.config.generation.temperature)

    @torch.no_grad()
    def reference_distributions(self, tokens: TokenBatch) -> Tensor:
        """The same under the reference."""
        return log_distribution(self.reference(tokens)[0], self.config.generation.temperature)

    def score(self, prompts: Sequence[str], responses: Sequence[str], *, stopped: bool = True) -> tuple[list[float], list[float]]:
        """(the reward model's scores, the gold scores) of responses to prompts."""
        episodes = Episodes(list(prompts), list(responses), [stopped] * len(prompts), [0] * len(prompts))
        gold = self.scorer.gold(episodes)
        assert gold is not None
        parts = torch.stack(list(self.scorer.parts(episodes).values())).sum(dim=0)
        return parts.tolist(), gold.tolist()

    @property
    def _forward(self) -> ForwardPass:
        return ForwardPass(self._compute, self.config.generation.temperature, self.config.ppo.micro_batch)


def unpacked(archive: Path, cache_folder: Path | None = None) -> Path:
    """The folder with the archive's files, see :func:`rlhf_studio.runs.finding.unpack.unpack`. Raises what that raises."""
    return unpack(Bundle(archive, "The lesson run", "lesson-run", {}), cache_folder)


def _silent(_text: str, _fraction: float | None) -> None:
    """Loading is quick, and nobody follows it."""
