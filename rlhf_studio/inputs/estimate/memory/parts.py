"""The parts of a run's memory: their names, what each one is, and the record of one part's size."""

from __future__ import annotations

from dataclasses import dataclass

# The names as people see them on the Train page.
FRAMEWORK = "Framework"
POLICY, REFERENCE, CRITIC, REWARD_MODELS = "Policy", "Reference", "Critic", "Reward models"
GRADIENTS, OPTIMIZER = "Gradients", "Optimizer"
PROMPTS, PROBES, EXAMPLES = "Prompts", "Probes", "Examples"
LEARNER = "Model"
CACHE, PREFILL, NEXT_TOKEN, MERGED, PREPACKED = "KV cache", "Prefill", "Next-token odds", "Merged adapters", "Weights laid out"
CAPTURED = "Captured step"
LOGITS, ACTIVATIONS = "Logits", "Activations"
SCORING, MEASURING, REFERENCE_PASS = "Scoring", "Held-out measurement", "Reference pass"

HELP = {
    FRAMEWORK: "Python and the libraries; on a GPU the driver's context.",
    POLICY: "The weights that learn, and the frozen base under LoRA.",
    REFERENCE: "A frozen copy of the policy. With LoRA it is the same weights with the adapters off.",
    LEARNER: "The weights that learn, and the frozen base under LoRA.",
    CRITIC: "The value head, and a separate critic's own trunk.",
    REWARD_MODELS: "All of them together.",
    GRADIENTS: "One number for each trained weight.",
    OPTIMIZER: "AdamW's two moments of each trained weight.",
    PROMPTS: "Texts and token ids of all prompts, as far as their number is known.",
    PROBES: "The starting policy's odds of every token of the vocabulary, at each token of the probes.",
    EXAMPLES: "Token ids of all examples, as far as their number is known.",
    CACHE: "Keys and values of the responses that are sampled together.",
    PREFILL: "What the policy needs while it reads the prompts of those responses, all at once.",
    NEXT_TOKEN: "Odds of every token of the vocabulary, for the responses that are sampled together.",
    MERGED: "Base and adapters as one matrix while sampling; the base's own weights are kept beside it.",
    PREPACKED: "A second layout of large matrices, in which sampling multiplies faster; kept for the whole run.",
    CAPTURED: "What a GPU's captured decoding step keeps from step to step: weights in the form that sampling uses, keys and values.",
    LOGITS: "Scores of every token of the vocabulary, for one micro-batch.",
    ACTIVATIONS: "What the forward pass keeps for the backward pass, for one micro-batch.",
    SCORING: "What the reward models need while they read.",
    MEASURING: "What the model needs while it reads held-out examples.",
    REFERENCE_PASS: "What the reference needs while it reads the pairs of a step.",
}
"""One sentence about each part, for people."""


@dataclass(frozen=True)
class MemoryPart:
    """One part of a run's memory.

    Attributes:
        name: one of the names above.
        parameters: weights, gradients or optimizer values in it; 0 where it holds none of these.
        low, high: bytes, least and most. All three are None when the model's files do not tell.
        lasting: whether it is held from loading to the end; else only while one phase runs.
    """

    name: str
    parameters: int | None
    low: int | None
    high: int | None
    lasting: bool = True
