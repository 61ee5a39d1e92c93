"""What earns reward: components and how their sum is shaped."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlhf_studio.config.base import Section, setting


class Component(Section):
    """What every reward component has."""

    name: str = setting("", "Name", "Label of this component in charts and tables; empty takes its kind.", max_length=60)
    weight: float = setting(
        1.0, "Weight", "The component's score is multiplied by this before all are summed; negative turns it into a penalty.",
        level="basic", ge=-1000, le=1000,
    )  # fmt: skip


class RewardModelReward(Component):
    """A sequence-classification model reads prompt and response and gives one number."""

    kind: Literal["reward_model"] = "reward_model"
    model: str = setting(
        "bundled/world-reward", "Reward model",
        "A sequence-classification model: a folder, a Hugging Face hub id, or bundled/world-reward. It uses its own tokenizer.",
        level="basic", min_length=1, max_length=4096,
    )  # fmt: skip
    revision: str = setting(
        "main", "Hub revision", "Branch, tag or commit to load when the model is a hub id.", min_length=1, max_length=200
    )
    label: str = setting(
        "", "Label", "Which of the model's labels is the reward, by name or number. Leave empty for a model with a single output.",
        level="basic", max_length=200,
    )  # fmt: skip
    output: Literal["logit", "probability"] = setting(
        "logit", "Output", "Take the label's raw logit, or its probability after softmax (sigmoid for a single output)."
    )
    batch_size: int = setting(64, "Batch size", "Texts scored in one forward pass.", unit="texts", ge=1, le=4096)
    max_tokens: int = setting(512, "Longest text", "Longer texts are cut on the left before scoring.", unit="tokens", ge=8, le=32768)
    append_eos: bool = setting(
        False, "Append end token", "Add the reward model's end-of-text token after a finished response, as some reward models were trained."
    )


class LengthReward(Component):
    """1 at the target length, falling linearly to 0 at a distance of ``tolerance`` and staying there."""

    kind: Literal["length"] = "length"
    target: int = setting(20, "Target length", "Response length that earns the full score.", unit="tokens", level="basic", ge=0, le=32768)
    tolerance: int = setting(
        10, "Tolerance", "Distance from the target at which the score reaches 0.", unit="tokens", level="basic", ge=1, le=32768
    )


class KeywordReward(Component):
    """Number of the given words found in the response (whole words, any case), up to a cap."""

    kind: Literal["keywords"] = "keywords"
    words: str = setting("good", "Words", "Words to look for, separated by commas.", level="basic", min_length=1, max_length=10_000)
    cap: int = setting(3, "Cap", "More hits than this earn nothing more.", unit="hits", ge=1, le=1000)


class RegexReward(Component):
    """1 when the pattern is found in the response, else 0."""

    kind: Literal["regex"] = "regex"
    pattern: str = setting(
        r"\.$", "Pattern", "Regular expression that is searched in the response.", level="basic", min_length=1, max_length=2000
    )
    timeout: float = setting(
        0.5, "Time limit", "A search that takes longer stops the run with a message, so that a costly pattern cannot hang it.",
        unit="seconds", gt=0, le=30,
    )  # fmt: skip


class RepetitionReward(Component):
    """Share of repeated n-grams in the response, 0 (none) to 1; use a negative weight to penalise it."""

    kind: Literal["repetition"] = "repetition"
    n: int = setting(3, "n-gram size", "Length of the word groups that are compared.", unit="words", level="basic", ge=1, le=20)


RewardComponent = Annotated[RewardModelReward | LengthReward | KeywordReward | RegexReward | RepetitionReward, Field(discriminator="kind")]


class RewardConfig(Section):
    """What earns reward: a weighted sum of components, and how the sum is shaped before PPO sees it."""

    components: list[RewardComponent] = setting(
        [RewardModelReward()], "Components", "The score of a response is the weighted sum of these.", level="basic", min_length=1,
        max_length=20,
    )  # fmt: skip
    scaling: Literal["none", "scale", "normalise"] = setting(
        "none",
        "Score scaling",
        "scale divides scores by their running standard deviation; normalise also subtracts their running mean.",
    )
    score_clip: float = setting(
        0.0, "Score clip", "Scores are limited to plus or minus this value after scaling; 0 does not limit.", ge=0, le=1e6
    )
    missing_eos_penalty: float = setting(
        0.0, "No-end penalty", "Subtracted from the score of a response that was cut off before its stop token.", ge=0, le=1000
    )
    gold: Literal["none", "world"] = setting(
        "none",
        "Gold scorer",
        "A second scorer that the policy never sees, drawn beside the reward to reveal over-optimisation. "
        "world: the review world's own rules.",
    )
