"""What the search knows beside the texts: the app's other pages, and other words for some places."""

from __future__ import annotations

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
