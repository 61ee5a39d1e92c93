"""Evaluation: several policies answer the same held-out prompts."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from rlhf_studio.config.base import Section, setting
from rlhf_studio.config.reward import RewardComponent, RewardConfig
from rlhf_studio.config.reward_models import RewardModelReward


class EvaluationRewardConfig(RewardConfig):
    """What scores the answers: as in PPO, or nothing at all."""

    components: list[RewardComponent] = setting(
        [RewardModelReward()], "Components",
        "The score of a response is the weighted sum of these. Without any, an evaluation shows the other numbers.",
        level="basic", max_length=20,
    )  # fmt: skip


class EvaluationConfig(Section):
    """Which policies answer, and how often."""

    policies: str = setting(
        "", "Policies",
        "What answers, one a line: the folder of a run (its newest checkpoint), RUN@STEP for a checkpoint or snapshot, RUN@start for the "
        "policy that it began with, RUN@all for that one and all checkpoints and snapshots, a model's folder or hub id, or a .jsonl file "
        "of completions. The first is what the others are compared with. Empty: the policy model alone.",
        level="basic", names="policies", max_length=20_000,
    )  # fmt: skip
    prompts: int = setting(
        128, "Prompts", "So many of the held-out prompts are answered; 0: all.", level="basic", unit="prompts", ge=0, le=100_000
    )
    samples: int = setting(1, "Answers per prompt", "Each with a seed of its own.", level="basic", unit="answers", ge=1, le=64)
    batch_size: int = setting(
        16, "Prompts per step", "So many prompts are answered by all policies in one step, which is then on record.", unit="prompts",
        ge=1, le=65536,
    )  # fmt: skip
    seed: int = setting(0, "Seed of the answers", "Every policy answers with the same random numbers.", level="basic", ge=0, le=2**31 - 1)
    greedy: bool = setting(False, "Greedy", "Always take the likeliest token instead of drawing one.", level="basic")
    reference: str = setting(
        "",
        "Reference model",
        "The model whose perplexity of each answer is measured, and that the KL refers to. Empty: the policy model.",
        names="model",
        max_length=4096,
    )
    reference_revision: str = setting(
        "main", "Reference revision", "Branch, tag or commit to load when the reference is a hub id.", min_length=1, max_length=200
    )
    judge: str = setting(
        "", "Judge",
        "A second opinion that none of the policies learned from: a reward model, a rule such as lexicon, a Python file, or a mapping of a "
        "reward's settings. Its score stands beside the reward, and decides who wins where there is no gold. Empty: none.",
        level="basic", names="model", max_length=4096,
    )  # fmt: skip
    text: str = setting(
        "",
        "Held-out text",
        "A file or dataset of texts whose perplexity under each policy shows what training made it forget. Empty: none.",
        names="data",
        max_length=4096,
    )
    text_column: str = setting("text", "Text column", "Column or key that holds the texts.", min_length=1, max_length=200)
    text_rows: int = setting(256, "Texts", "Only the first texts up to this number are read.", unit="texts", ge=1, le=100_000)

    @model_validator(mode="after")
    def _answers_differ(self) -> Self:
        if self.greedy and self.samples > 1:
            raise ValueError("samples: greedy answers to one prompt are all the same; use 1, or switch greedy off")
        return self
