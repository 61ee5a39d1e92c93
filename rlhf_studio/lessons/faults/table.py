"""The nine experiments. Each claim is checked on several seeds by ``python -m benchmarks.break_it``."""

from __future__ import annotations

from rlhf_studio.lessons.faults.experiment import WHICH, Experiment, Side
from rlhf_studio.lessons.kit import Numbers

NORMAL = Side("as the recipe has it")
COOL = {"generation.temperature": 0.7}


def _both_rise(n: Numbers) -> bool:
    return bool(min(n[f"gold_{which}"] - n[f"gold_{which}_start"] for which in WHICH) > 0.3)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "no_kl",
        NORMAL,
        Side("no KL penalty", {"ppo.kl_coef": 0.0}),
        metric="gold",
        margin=0.2,
        token="rewards",
        claims={
            "the reward model likes the run without the penalty more": lambda n: n["score_change"] > 0.2,
            "the hidden gold score ends lower": lambda n: n["gold_change"] < -0.5,
            "the KL grows at least five times as large": lambda n: n["kl_second"] > 5 * n["kl_first"],
        },
    ),
    Experiment(
        "no_whitening",
        NORMAL,
        Side("no whitening", {"ppo.whiten_advantages": False}),
        metric="gold",
        margin=0.2,
        token="whitened_advantages",
        claims={
            "the gold score ends about the same": lambda n: abs(n["gold_change"]) < 0.2,
            "the gradient is smaller": lambda n: n["gradient_second"] < 0.6 * n["gradient_first"],
        },
    ),
    Experiment(
        "temperature",
        Side("temperature below one", COOL),
        Side("temperature ignored in scoring (broken on purpose)", COOL, "temperature"),
        metric="kl",
        margin=1.0,
        token="kl",
        claims={
            "the KL starts at 0 only as it should be": lambda n: abs(n["kl_first_start"]) < 0.01 and abs(n["kl_second_start"]) > 0.3,
            "the ratio is off before the first update": lambda n: (
                n["first_ratio_first_start"] < 1e-3 and n["first_ratio_second_start"] > 0.1
            ),
            "many more tokens are clipped": lambda n: n["clip_second"] > 5 * n["clip_first"],
            "the KL ends higher": lambda n: n["kl_change"] > 1,
            "the gold score rises in both runs": _both_rise,
        },
    ),
    Experiment(
        "dropout",
        NORMAL,
        Side("dropout left on (broken on purpose)", {}, "dropout"),
        metric="gold",
        margin=0.2,
        token="ratio",
        claims={
            "the gold score ends about the same": lambda n: abs(n["gold_change"]) < 0.2,
            "the ratio is off before the first update": lambda n: (
                n["first_ratio_first_start"] < 1e-3 and n["first_ratio_second_start"] > 0.1
            ),
            "many more tokens are clipped": lambda n: n["clip_second"] > 5 * n["clip_first"],
        },
    ),
    Experiment(
        "pad_is_end",
        NORMAL,
        Side("scored behind the padding (broken on purpose)", {}, "pad_is_end"),
        metric="gold",
        margin=0.2,
        token="rewards",
        claims={
            "the same texts get other scores": lambda n: abs(n["score_second_start"] - n["score_first_start"]) > 0.3,
            "the score ends lower": lambda n: n["score_change"] < -0.3,
            "the gold score ends about the same": lambda n: abs(n["gold_change"]) < 0.2,
        },
    ),
    Experiment(
        "learning_rate",
        NORMAL,
        Side("learning rate times fifty", {"ppo.learning_rate": 0.01}),
        metric="gold",
        margin=0.2,
        token="ratio",
        claims={
            "the gold score ends far lower": lambda n: n["gold_change"] < -0.5,
            "the first update moves the policy a hundred times as far": lambda n: n["moved_second_start"] > 100 * n["moved_first_start"],
        },
    ),
    Experiment(
        "epochs",
        Side("one epoch", {"ppo.ppo_epochs": 1}),
        Side("eight epochs", {"ppo.ppo_epochs": 8}),
        metric="gold",
        margin=0.2,
        token="ratio",
        claims={
            "the reward model likes the run with eight epochs more": lambda n: n["score_change"] > 0.2,
            "the KL ends at least twice as large": lambda n: n["kl_second"] > 2 * n["kl_first"],
            "the gold score ends about the same": lambda n: abs(n["gold_change"]) < 0.2,
            "with one epoch hardly a token is clipped": lambda n: n["clip_first_largest"] < 0.01,
        },
    ),
    Experiment(
        "critic",
        NORMAL,
        Side("a critic that never learns (broken on purpose)", {}, "critic"),
        metric="gold",
        margin=0.2,
        token="values",
        claims={
            "all values stay 0": lambda n: n["value_second_largest"] == 0,
            "the critic explains nothing": lambda n: n["explained_first"] > 0 > n["explained_second"],
            "the gold score ends about the same": lambda n: abs(n["gold_change"]) < 0.2,
        },
    ),
    Experiment(
        "reward_token",
        NORMAL,
        Side("reward on the wrong token (broken on purpose)", {}, "reward_token"),
        metric="gold",
        margin=0.2,
        token="rewards",
        claims={
            "the gold score ends lower": lambda n: n["gold_change"] < -0.2,
            "the score rises all the same": lambda n: n["score_second"] > n["score_second_start"] + 0.2,
            "the critic expects less": lambda n: n["value_second"] < 0.5 * n["value_first"],
        },
    ),
)
