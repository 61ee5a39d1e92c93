"""The parts of a run's memory: their names, what each one is, and the record of one part's size."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_studio.language import N_

# The names as people see them on the Train page.
FRAMEWORK = N_("Framework")
POLICY, REFERENCE, CRITIC, REWARD_MODELS = N_("Policy"), N_("Reference"), N_("Critic"), N_("Reward models")
GRADIENTS, OPTIMIZER = N_("Gradients"), N_("Optimizer")
PROMPTS, PROBES, EXAMPLES = N_("Prompts"), N_("Probes"), N_("Examples")
LEARNER = N_("Model")
CACHE, PREFILL, NEXT_TOKEN, MERGED, PREPACKED = (
    N_("KV cache"),
    N_("Prefill"),
    N_("Next-token odds"),
    N_("Merged adapters"),
    N_("Weights laid out"),
)
CAPTURED = N_("Captured step")
LOGITS, ACTIVATIONS = N_("Logits"), N_("Activations")
SCORING, MEASURING, REFERENCE_PASS = N_("Scoring"), N_("Held-out measurement"), N_("Reference pass")

HELP = {
    FRAMEWORK: N_("Python and the libraries; on a GPU the driver's context."),
    POLICY: N_("The weights that learn, and the frozen base under LoRA."),
    REFERENCE: N_("A frozen copy of the policy. With LoRA it is the same weights with the adapters off."),
    LEARNER: N_("The weights that learn, and the frozen base under LoRA."),
    CRITIC: N_("The value head, and a separate critic's own trunk."),
    REWARD_MODELS: N_("All of them together."),
    GRADIENTS: N_("One number for each trained weight."),
    OPTIMIZER: N_("AdamW's two moments of each trained weight."),
    PROMPTS: N_("Texts and token ids of all prompts, as far as their number is known."),
    PROBES: N_("The starting policy's odds of every token of the vocabulary, at each token of the probes."),
    EXAMPLES: N_("Token ids of all examples, as far as their number is known."),
    CACHE: N_("Keys and values of the responses that are sampled together."),
    PREFILL: N_("What the policy needs while it reads the prompts of those responses, all at once."),
    NEXT_TOKEN: N_("Odds of every token of the vocabulary, for the responses that are sampled together."),
    MERGED: N_("Base and adapters as one matrix while sampling; the base's own weights are kept beside it."),
    PREPACKED: N_("A second layout of large matrices, in which sampling multiplies faster; kept for the whole run."),
    CAPTURED: N_("What a GPU's captured decoding step keeps from step to step: weights in the form that sampling uses, keys and values."),
    LOGITS: N_("Scores of every token of the vocabulary, for one micro-batch."),
    ACTIVATIONS: N_("What the forward pass keeps for the backward pass, for one micro-batch."),
    SCORING: N_("What the reward models need while they read."),
    MEASURING: N_("What the model needs while it reads held-out examples."),
    REFERENCE_PASS: N_("What the reference needs while it reads the pairs of a step."),
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
