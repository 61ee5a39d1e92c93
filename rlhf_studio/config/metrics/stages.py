"""The metrics of the stages around PPO: supervised fine-tuning, reward model and DPO. One row each, as in :mod:`.table`."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_studio.config.metrics.metric import ChartLine, Metric, Tile

_SFT = (
    Metric(
        "sft/loss",
        "Loss",
        "nats per token",
        "How badly the model predicts the tokens that it is to learn, on the examples of this step: minus their mean log-probability.",
        "Falls fast at first, then slowly; each step sees other examples, so it is noisy.",
        colour="policy",
        lines=(ChartLine("sft-loss"),),
        tile=Tile(),
    ),
    Metric(
        "sft/eval_loss",
        "Held-out loss",
        "nats per token",
        "The same loss on examples that training never sees.",
        "Falls with the loss. When it rises again while the loss falls, the model overfits.",
        colour="value",
        lines=(ChartLine("sft-loss", style="sparse"),),
        tile=Tile(),
    ),
    Metric(
        "sft/perplexity",
        "Perplexity",
        "",
        "The exponential of the loss, which is a mean over tokens, so that long examples count more: between how many equally likely "
        "tokens the model seems to choose. 1 is certain.",
        "Falls towards the held-out perplexity.",
        colour="kl",
        lines=(ChartLine("perplexity", style="soft"),),
    ),
    Metric(
        "sft/eval_perplexity",
        "Held-out perplexity",
        "",
        "Perplexity on examples that training never sees: the exponential of their mean loss over all tokens together.",
        "Falls, then stays; the lowest point is the best model.",
        colour="entropy",
        lines=(ChartLine("perplexity", style="sparse"),),
        tile=Tile(),
    ),
)

_REWARD_MODEL = (
    Metric(
        "reward_model/eval_accuracy",
        "Held-out accuracy",
        "share of pairs",
        "In how many of the pairs that training never sees the chosen response has the higher score. Guessing gives 50 %.",
        "Well above 50 %; people agree with each other on 60 to 80 % of such pairs, so more than that is rare outside toy worlds.",
        colour="length",
        lines=(ChartLine("accuracy", style="sparse", percent=True),),
        tile=Tile(digits=1, percent=True),
    ),
    Metric(
        "reward_model/accuracy",
        "Accuracy",
        "share of pairs",
        "In how many pairs of this step the chosen response has the higher score.",
        "Rises above 50 %; far above the held-out accuracy the pairs are being learned by heart.",
        colour="score",
        lines=(ChartLine("accuracy", style="soft", percent=True),),
        tile=Tile(digits=1, percent=True),
    ),
    Metric(
        "reward_model/loss",
        "Log loss",
        "nats per pair",
        "How surprised the model is by people's choices, on the pairs of this step. 0.69 is guessing.",
        "Falls below 0.69.",
        colour="policy",
        lines=(ChartLine("pair-loss"),),
        tile=Tile(digits=3),
    ),
    Metric(
        "reward_model/eval_loss",
        "Held-out log loss",
        "nats per pair",
        "The plain log loss on pairs that training never sees: without margins, smoothing, weights and centering.",
        "Falls with the loss. When it rises again, the model has become too sure of itself.",
        colour="value",
        lines=(ChartLine("pair-loss", style="sparse"),),
        tile=Tile(digits=3, label="Held-out log loss"),
    ),
    Metric(
        "reward_model/margin",
        "Margin",
        "points",
        "How much higher the chosen response is scored than the rejected one, on average over the pairs of this step.",
        "Rises above 0; without end it says that scores are only being stretched.",
        colour="kl",
        lines=(ChartLine("margin", style="soft"),),
    ),
    Metric(
        "reward_model/eval_margin",
        "Held-out margin",
        "points",
        "The same on pairs that training never sees.",
        "Rises above 0; without end it says that scores are only being stretched.",
        colour="entropy",
        lines=(ChartLine("margin", style="sparse"),),
        tile=Tile(),
    ),
    Metric(
        "reward_model/chosen_mean",
        "Chosen score",
        "points",
        "Mean score of the chosen responses of this step.",
        "Moves away from the rejected score; where the two lie does not matter, only the distance.",
        colour="part-1",
        lines=(ChartLine("chosen-rejected", style="soft"),),
    ),
    Metric(
        "reward_model/rejected_mean",
        "Rejected score",
        "points",
        "Mean score of the rejected responses of this step.",
        "Stays below the chosen score.",
        colour="clip",
        lines=(ChartLine("chosen-rejected", style="soft"),),
    ),
    Metric(
        "reward_model/gold_accuracy",
        "Agreement with gold",
        "share of pairs",
        "In how many held-out pairs of the review world the model prefers the same response as the world's gold reward.",
        "Near the held-out accuracy or above: people's choices are noisier than gold.",
        colour="gold",
        lines=(ChartLine("accuracy", style="sparse", percent=True),),
    ),
    Metric(
        "reward_model/calibration_error",
        "Calibration error",
        "share",
        "How far the model's certainty is from how often it is right, on average over the held-out pairs.",
        "Below 5 %.",
    ),
    Metric(
        "reward_model/overconfidence",
        "Overconfidence",
        "share",
        "How much oftener the model expects to be right than it is, on the held-out pairs.",
        "Near 0; above 0 it is too sure of itself.",
    ),
    Metric(
        "reward_model/length_correlation",
        "Score follows length",
        "",
        "Correlation of score and length over all held-out responses.",
        "Near that of people's choices; near 1 the model only counts words.",
    ),
)

_DPO = (
    Metric(
        "dpo/loss",
        "DPO loss",
        "nats per pair",
        "How surprised the policy is by people's choices when β times its log-ratio to the reference is its score. 0.69 at the start.",
        "Falls below 0.69.",
        colour="policy",
        lines=(ChartLine("dpo-loss"),),
        tile=Tile(digits=3, label="Loss"),
    ),
    Metric(
        "dpo/eval_loss",
        "Held-out DPO loss",
        "nats per pair",
        "The same loss on pairs that training never sees.",
        "Falls with the loss. When it rises again, the policy overfits.",
        colour="value",
        lines=(ChartLine("dpo-loss", style="sparse"),),
        tile=Tile(digits=3, label="Held-out loss"),
    ),
    Metric(
        "dpo/accuracy",
        "Pair accuracy",
        "share of pairs",
        "In how many pairs of this step the chosen response became likelier, against the reference, than the rejected one.",
        "Rises above 50 %.",
        colour="score",
        lines=(ChartLine("dpo-accuracy", style="soft", percent=True),),
        tile=Tile(digits=1, percent=True, label="Accuracy"),
    ),
    Metric(
        "dpo/eval_accuracy",
        "Held-out pair accuracy",
        "share of pairs",
        "The same on pairs that training never sees.",
        "Rises with the accuracy.",
        colour="length",
        lines=(ChartLine("dpo-accuracy", style="sparse", percent=True),),
        tile=Tile(digits=1, percent=True, label="Held-out accuracy"),
    ),
    Metric(
        "dpo/margin",
        "Reward margin",
        "points",
        "Implicit reward of the chosen response minus that of the rejected one, on average over the pairs of this step. The implicit "
        "reward is β times the log-ratio of policy to reference.",
        "Rises slowly. A large margin means that the policy is far from its reference.",
        colour="kl",
        lines=(ChartLine("dpo-margin", style="soft"),),
        tile=Tile(label="Margin"),
    ),
    Metric(
        "dpo/eval_margin",
        "Held-out reward margin",
        "points",
        "The same on pairs that training never sees.",
        "Rises with the margin.",
        colour="entropy",
        lines=(ChartLine("dpo-margin", style="sparse"),),
    ),
    Metric(
        "dpo/chosen_reward",
        "Chosen reward",
        "points",
        "β times the log-ratio of policy to reference on the chosen responses of this step: how much likelier the policy made them.",
        "Near or above 0. When it falls far below, the policy unlearns the good responses too, only more slowly.",
        colour="part-1",
        lines=(ChartLine("dpo-rewards", style="soft"),),
        tile=Tile(),
    ),
    Metric(
        "dpo/rejected_reward",
        "Rejected reward",
        "points",
        "The same on the rejected responses.",
        "Falls below the chosen reward.",
        colour="clip",
        lines=(ChartLine("dpo-rewards", style="soft"),),
        tile=Tile(),
    ),
    Metric(
        "dpo/chosen_logprob",
        "Log-prob, chosen",
        "nats per response",
        "Log-probability of the chosen responses of this step under the policy, summed over their tokens, on average.",
        "Stays or rises. When it falls, the policy makes the good responses rarer too.",
    ),
    Metric(
        "dpo/rejected_logprob",
        "Log-prob, rejected",
        "nats per response",
        "The same of the rejected responses.",
        "Falls faster than that of the chosen ones.",
    ),
)

_SHARED = (Metric("train/epoch", "Epoch", "passes", "Passes over the training examples so far.", "Ends at the number you chose."),)

STAGE_METRICS: tuple[Metric, ...] = (*_SFT, *_REWARD_MODEL, *_DPO, *_SHARED)
"""The metrics of the supervised stages. What PPO has too (learning rate, times, memory) stands in the table of all."""


@dataclass(frozen=True)
class Headline:
    """The number that says most about a run of a stage.

    Attributes:
        names: metrics, the one to take first; the next where a run does not have it.
        falls: whether lower is better.
        percent: whether it is shown as a percentage.
    """

    names: tuple[str, ...]
    falls: bool = False
    percent: bool = False


HEADLINES: dict[str, Headline] = {
    "ppo": Headline(("gold/score", "objective/scores")),
    "sft": Headline(("sft/eval_loss", "sft/loss"), falls=True),
    "reward_model": Headline(("reward_model/eval_accuracy", "reward_model/accuracy"), percent=True),
    "dpo": Headline(("dpo/eval_accuracy", "dpo/accuracy"), percent=True),
}
"""By stage. An evaluation has none: it compares policies, and has no course."""

SUMMARIES: dict[str, tuple[str, ...]] = {
    "ppo": ("objective/scores", "gold/score", "objective/kl", "tokens/response_length", "policy/entropy_avg"),
    "sft": ("sft/loss", "sft/eval_loss", "sft/eval_perplexity"),
    "reward_model": ("reward_model/eval_accuracy", "reward_model/eval_loss", "reward_model/eval_margin"),
    "dpo": ("dpo/eval_accuracy", "dpo/eval_loss", "dpo/eval_margin", "dpo/chosen_reward", "dpo/rejected_reward"),
    "evaluation": (),
}
"""By stage, the numbers by which a run's beginning and end are told."""
