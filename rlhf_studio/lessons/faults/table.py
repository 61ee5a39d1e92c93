"""The nine experiments. ``pytest -m long tests/lessons/test_break_it.py`` trains them and checks what their texts say."""

from __future__ import annotations

from rlhf_studio.lessons.faults.experiment import Experiment, Side

NORMAL = Side("as the recipe has it")
COOL = {"generation.temperature": 0.7}

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment("no_kl", NORMAL, Side("no KL penalty", {"ppo.kl_coef": 0.0}), metric="gold", margin=0.2, token="rewards"),
    Experiment(
        "no_whitening",
        NORMAL,
        Side("no whitening", {"ppo.whiten_advantages": False}),
        metric="gold",
        margin=0.2,
        token="whitened_advantages",
    ),
    Experiment(
        "temperature",
        Side("temperature below one", COOL),
        Side("temperature ignored in scoring (broken on purpose)", COOL, "temperature"),
        metric="kl",
        margin=1.0,
        token="kl",
    ),
    Experiment("dropout", NORMAL, Side("dropout left on (broken on purpose)", {}, "dropout"), metric="gold", margin=0.2, token="ratio"),
    Experiment(
        "pad_is_end",
        NORMAL,
        Side("scored behind the padding (broken on purpose)", {}, "pad_is_end"),
        metric="gold",
        margin=0.2,
        token="rewards",
    ),
    Experiment(
        "learning_rate", NORMAL, Side("learning rate times fifty", {"ppo.learning_rate": 0.01}), metric="gold", margin=0.2, token="ratio"
    ),
    Experiment(
        "epochs",
        Side("one epoch", {"ppo.ppo_epochs": 1}),
        Side("eight epochs", {"ppo.ppo_epochs": 8}),
        metric="gold",
        margin=0.2,
        token="ratio",
    ),
    Experiment(
        "critic", NORMAL, Side("a critic that never learns (broken on purpose)", {}, "critic"), metric="gold", margin=0.2, token="values"
    ),
    Experiment(
        "reward_token",
        NORMAL,
        Side("reward on the wrong token (broken on purpose)", {}, "reward_token"),
        metric="gold",
        margin=0.2,
        token="rewards",
    ),
)
