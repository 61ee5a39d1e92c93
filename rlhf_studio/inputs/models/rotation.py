"""Rotary positions whose frequencies depend on how long a text is, so that all texts of a run must lie on one side of a boundary.

``longrope`` (Phi-3 with a long context) has one set of frequencies up to its original length and another beyond, ``dynamic`` one that
goes on changing. transformers chooses by the longest row of a batch, for every row and every position in it: a short text would get other
numbers beside a long one; and a response that crosses the boundary keeps keys in its cache that were turned by the first set.
"""

from __future__ import annotations

from typing import Any

from rlhf_studio.language import S_

CHANGING = {"longrope", "dynamic"}
LONGROPE_ONCE = {"su", "yarn"}  # Phi-3's first files
PHI3 = {"phi3", "phimoe", "phi4_multimodal"}


def rotation_boundary(config: dict[str, Any]) -> int | None:
    """Tokens of the longest text before the frequencies change, by a model's config.json; None where they never do."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(scaling, dict):
        return None
    by_layer_type = [entry for entry in scaling.values() if isinstance(entry, dict)]
    boundaries = [_boundary(config, entry) for entry in by_layer_type or [scaling]]
    return min((tokens for tokens in boundaries if tokens is not None), default=None)


def _boundary(config: dict[str, Any], scaling: dict[str, Any]) -> int | None:
    kind = scaling.get("rope_type") or scaling.get("type")
    if not isinstance(kind, str):
        return None
    if kind in LONGROPE_ONCE and config.get("model_type") in PHI3:
        kind = "longrope"
    if kind not in CHANGING or scaling.get("alpha"):  # Hunyuan's files say dynamic, but a fixed alpha never changes
        return None
    longest = config.get("max_position_embeddings")
    original = config.get("original_max_position_embeddings") or scaling.get("original_max_position_embeddings") or longest
    tokens = original if kind == "longrope" else longest
    return tokens if type(tokens) is int else None


def boundary_problem(name: str, boundary: int | None, prompts: tuple[int, int], response: int) -> str | None:
    """Why texts of these lengths cannot all be on one side, as one sentence; None when they are.

    Args:
        prompts: tokens of the shortest and of the longest prompt.
        response: most tokens of a response.
    """
    shortest, longest = prompts
    if boundary is None or longest + response <= boundary or shortest > boundary:
        return None
    most = boundary - response
    keep = S_(f"keep data.max_prompt_tokens at {most:,} or less") if most > 0 else S_(f"keep generation.response_length below {boundary:,}")
    return S_(
        f"{name} turns its positions by other frequencies in a text of more than {boundary:,} tokens, and prompts of {shortest:,} to "
        f"{longest:,} tokens with responses of {response:,} lie on both sides; {keep}, or use prompts of more than {boundary:,} tokens only"
    )
