"""What the search knows beside the texts: the app's other pages, other words for some places, and how words are written alike."""

from __future__ import annotations

import re

GREEK = {
    **{"α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ϵ": "epsilon", "λ": "lambda", "μ": "mu"},
    **{"π": "pi", "ρ": "rho", "σ": "sigma", "τ": "tau", "θ": "theta"},
}
_GREEK = str.maketrans({letter: f" {name} " for letter, name in GREEK.items()})

HAN = re.compile("[\u3400-\u9fff\uf900-\ufaff]")
"""A Chinese character."""
HAN_EMPTY = re.compile("为什么|什么|怎么|如何|是否|的|是|吗|呢|了|在|和|与")
"""Words of Chinese questions that tell nothing."""

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
    "before_the_loop": "start of train, all the setup before it",
    "beyond": "DPO versus PPO",
    "clip/ratio": "gradient at a ratio with a negative advantage",
    "docs/api.md": "REST API, HTTP, endpoints",
    "docs/deploy.md#a-gradio-space": "deploy to a Space, deploy a Space, host it on Spaces",
    "docs/faq.md#which-label-of-a-sentiment-classifier-is-the-reward": "the positive reward is extracted",
    "docs/feedback.md#results": "inter-annotator agreement",
    "docs/planner.md": "how much memory a 7B model needs",
    "docs/data.md#chats": "chat template",
    "docs/many-gpus.md": "multi-GPU, distributed training",
    "gae": "gamma and lambda",
    "gae/constants": "detach the result from the computation graph, no_grad",
    "gae/right_to_left": "computation in reverse, reversed, backwards",
    "gae/whitening": "normalize normalise standardize advantages",
    "lora/memory": "GPU memory VRAM OOM out of memory",
    "lora/start_and_merge": "merge_and_unload",
    "logprobs/which_tokens": "why mask the query, the prompt, the padding",
    "policy_and_value": "value model, value network, value function, critic",
    "policy_and_value/where_the_trunk_is": "getattr, critic_backbone, base_model_prefix",
    "query_and_response/only_the_response": "focus on the response, not on the query, what happens after the stop token, EOS, end token",
    "reference/memory": "four models, GPU memory, VRAM, ZeRO-3, DeepSpeed, 7B",
    "reference/switch": "what adapters are doing, PEFT support, peft_config",
    "rewards": "beta, the KL coefficient",
    "rewards/dice": "k1 vs k3",
    "what_goes_wrong/two_curves": "reward hacking, over-optimisation, exploits the judge",
    "rlhf/only_good": "fine-tune on positive reviews, SFT",
    "tour.whitening": "normalize normalise standardize advantages",
}
"""Words that people ask with and a text does not have, by the place that answers them: a lesson, ``lesson/scene``, a station, a section of
a document (``docs/api.md#anchor``), a setting or a check of the doctor."""


def plain(text: str) -> str:
    """Text in the form that is searched: Greek letters by name, names split at their capitals, Chinese characters apart, -ise as -ize."""
    spread = HAN.sub(r" \g<0> ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text.translate(_GREEK)))
    return _SPELLING.sub("iz", spread.lower())
