"""The fewest floating-point operations that one update can do, from the workload alone.

A weight that takes part in a matrix product costs 2 operations per token forward (a multiplication and an addition) and 4
backward, one product for the input's gradient and one for its own; a frozen weight costs 2 backward. Counted once each: what the
trunk reads (prompt and response without its last token), the vocabulary projection at the response's positions only, one trunk
for policy and values. A supervised stage has one pass forward and backward over whole texts; of a pair's two texts both count, with
the prompt that they share. Not counted: attention's own products, norms, activations, softmax, sampling, the optimizer.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.speed.workloads import LORA_RANK, Shape, Workload

FUSED = {"c_attn", "query_key_value"}  # GPT-2 and GPT-NeoX keep query, key and value in one matrix


@dataclass(frozen=True)
class Floor:
    """Operations of one update by phase."""

    rollout: float
    scoring: float
    optimisation: float

    @property
    def total(self) -> float:
        return self.rollout + self.scoring + self.optimisation

    def seconds(self, rate: float) -> float:
        """Seconds at ``rate`` operations per second."""
        return self.total / rate


def trunk_weights(shape: Shape) -> int:
    """Weights in the blocks' matrices: query and output, key and value, and the feed-forward part; a Llama's has a gate."""
    inner = shape.inner or 4 * shape.width
    return shape.layers * shape.width * (2 * shape.width + 2 * keys_width(shape) + (3 if shape.family == "llama" else 2) * inner)


def keys_width(shape: Shape) -> int:
    """Width of the keys, and of the values."""
    return shape.width * (shape.key_heads or shape.heads) // shape.heads


def head_weights(shape: Shape) -> int:
    """Weights of the vocabulary projection."""
    return shape.vocabulary * shape.width


def lora_weights(shape: Shape, names: tuple[str, ...]) -> int:
    """Weights of the adapters on the layers of these names: rank · (rows + columns) of each adapted matrix."""
    columns = dict.fromkeys(FUSED, 3 * shape.width) | {"q_proj": shape.width, "v_proj": keys_width(shape)}
    return sum(LORA_RANK * (shape.width + columns[name]) * shape.layers for name in names)


def floor(workload: Workload) -> Floor:
    """Operations of one update with the expected lengths."""
    if workload.stage != "ppo":
        return Floor(rollout=0.0, scoring=0.0, optimisation=_supervised(workload))
    responses = workload.batch * workload.response
    read = workload.batch * (workload.mean_prompt + workload.response - 1)
    all_tokens = workload.batch * (workload.mean_prompt + workload.response)
    trunk, head, lora = trunk_weights(workload.policy), head_weights(workload.policy), lora_weights(workload.policy, workload.lora)
    forward = 2 * (trunk * read + head * responses)
    passes = 2 if workload.lora else 3  # forward, backward to the inputs, and backward to the weights unless they are frozen
    learn = passes * forward + 6 * lora * read
    return Floor(
        rollout=forward,  # adapters can be added into the weights while sampling
        scoring=forward + 2 * trunk_weights(workload.reward) * all_tokens,
        optimisation=workload.epochs * learn,
    )


def _supervised(workload: Workload) -> float:
    """Operations of one optimizer step: completions predicted by a language model, or both texts of each pair scored at their ends."""
    sft = workload.stage == "sft"
    shape, texts = (workload.policy, workload.batch) if sft else (workload.reward, 2 * workload.batch)
    read = texts * (workload.mean_prompt + workload.mean_completion - sft)  # nothing follows a text's last token, so only a score needs it
    head = head_weights(shape) * texts * workload.mean_completion if sft else shape.width * texts
    forward = 2 * (trunk_weights(shape) * read + head)
    return (2 if workload.lora else 3) * forward + 6 * lora_weights(shape, workload.lora) * read
