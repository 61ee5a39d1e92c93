"""The nine experiments. Each claim is checked on several seeds by ``python -m benchmarks.break_it``."""

from __future__ import annotations

from rlhf_studio.lessons.faults.experiment import Experiment, Side

NORMAL = Side("as the recipe has it")
COOL = {"generation.temperature": 0.7}

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "no_kl",
        NORMAL,
        Side("no KL penalty", {"ppo.kl_coef": 0.0}),
        asked="gold",
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
        asked="gold",
        margin=0.2,
        token="whitened_advantages",
        claims={},
    ),
    Experiment(
        "temperature",
        Side("temperature below one", COOL),
        Side("temperature ignored in scoring (broken on purpose)", COOL, "temperature"),
        asked="kl",
        margin=1.0,
        token="kl",
        claims={},
    ),
    Experiment(
        "dropout",
        NORMAL,
        Side("dropout left on (broken on purpose)", {}, "dropout"),
        asked="gold",
        margin=0.2,
        token="ratio",
        claims={},
    ),
    Experiment(
        "pad_is_end",
        NORMAL,
        Side("scored behind the padding (broken on purpose)", {}, "pad_is_end"),
        asked="gold",
        margin=0.2,
        token="rewards",
        claims={},
    ),
    Experiment(
        "learning_rate",
        NORMAL,
        Side("learning rate times fifty", {"ppo.learning_rate": 0.01}),
        asked="gold",
        margin=0.2,
        token="ratio",
        claims={},
    ),
    Experiment(
        "epochs",
        Side("one epoch", {"ppo.ppo_epochs": 1}),
        Side("eight epochs", {"ppo.ppo_epochs": 8}),
        asked="gold",
        margin=0.2,
        token="ratio",
        claims={},
    ),
    Experiment(
        "critic",
        NORMAL,
        Side("a critic that never learns (broken on purpose)", {}, "critic"),
        asked="gold",
        margin=0.2,
        token="values",
        claims={},
    ),
    Experiment(
        "reward_token",
        NORMAL,
        Side("reward on the wrong token (broken on purpose)", {}, "reward_token"),
        asked="gold",
        margin=0.2,
        token="rewards",
        claims={},
    ),
)
