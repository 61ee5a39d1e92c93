"""What the Learn page's search knows beside the lessons' texts: pages outside Learn, and other words for some lessons."""

from __future__ import annotations

import re

GREEK = {
    **{"α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ϵ": "epsilon", "λ": "lambda", "μ": "mu"},
    **{"π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "θ": "theta"},
}
_GREEK = str.maketrans({letter: f" {name} " for letter, name in GREEK.items()})

_SPELLING = re.compile(r"(?<=[a-z]{3})is(?=(?:e|ed|es|ing|ation|ations)\b)")

PAGES = (
    (
        "Runs tab",
        "Checkpoints: save and resume training",
        "A run saves checkpoints while it trains. The Runs tab lists the runs; a stopped run can be resumed there. "
        "The settings are engine.checkpoint_every and engine.keep_checkpoints.",
    ),
    (
        "Evaluate tab",
        "Win rate: which of two models answers better",
        "The Evaluate tab compares checkpoints and models: win rate, scores, answers side by side.",
    ),
    (
        "docs/many-gpus.md",
        "Several GPUs, processes and machines",
        "Distributed training (multi-GPU): engine.processes, accelerate, FSDP.",
    ),
    (
        "docs/data.md",
        "Chat template: prompts for a chat model",
        "The setting data.chat_template writes each prompt as the tokenizer of the policy defines.",
    ),
    (
        "docs/planner.md",
        "GPU memory and time before a run",
        "How much memory a run needs, for a 7B model too, and how long it takes.",
    ),
    ("docs/export.md", "Export: take the trained model home", "Weights, merged adapters, tables, and push to the hub."),
    (
        "Talk tab",
        "Talk to a checkpoint",
        "Write prompts of your own, chat with a checkpoint, and see each token's probability.",
    ),
    (
        "Feedback tab",
        "Human feedback: label preferences",
        "Compare answers yourself and train a reward model on your preferences.",
    ),
    ("Live tab", "Charts of a run: metrics, stats, samples", "Watch loss, KL, reward and samples of a run while it trains."),
)
"""What is found outside Learn: where, a title, and what is said of it."""

OTHER_WORDS = {
    "before_the_loop": "start of train",
    "beyond": "DPO versus PPO",
    "clip/ratio": "gradient at a ratio with a negative advantage",
    "gae": "gamma and lambda",
    "gae/whitening": "normalize normalise standardize advantages",
    "lora/memory": "GPU memory VRAM OOM out of memory",
    "lora/start_and_merge": "merge_and_unload",
    "logprobs/which_tokens": "why mask the query, the prompt, the padding",
    "policy_and_value": "value model, value network, value function, critic",
    "query_and_response/only_the_response": "what happens after the stop token, EOS, end token",
    "reference/memory": "four models, GPU memory, VRAM, ZeRO-3, DeepSpeed, 7B",
    "rewards": "beta, the KL coefficient",
    "rewards/dice": "k1 vs k3",
    "what_goes_wrong/two_curves": "reward hacking, over-optimisation, exploits the judge",
    "tour.whitening": "normalize normalise standardize advantages",
}
"""Words that people ask with and a text does not have, by the place that answers them: a lesson, ``lesson/scene``, or a station."""


def plain(text: str) -> str:
    """Text in the form that is searched: Greek letters by name, names split at their capitals, -ize written -ise."""
    spread = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text.translate(_GREEK))
    return _SPELLING.sub("iz", spread.lower())
