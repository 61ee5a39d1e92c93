"""The names of what a line of a log holds. Where RL Logging Board has a name for something, it is ours too."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import orjson

LogFields = dict[str, Any]
"""The fields of one line."""

FORMAT, VERSION = "rlhf-studio-log", 1

KINDS = ("run", "step", "rollout", "watched", "pieces", "episodes", "probe", "probe_score", "change", "event")
"""What a line may be. A line without ``kind`` is a rollout."""

TOKEN_KEYS = {
    "logprobs": "logprobs",
    "new_logprobs": "new_logprobs",
    "ref_logprobs": "ref_logprobs",
    "token_kl": "kl",
    "token_rewards": "rewards",
    "values": "values",
    "advantages": "advantages",
    "whitened_advantages": "whitened_advantages",
    "returns": "returns",
    "deltas": "deltas",
    "entropy": "entropy",
    "ratio": "ratio",
    "clipped": "clipped",
}
"""Arrays with one number for each token of the response: key of the line -> name in our records."""

FLAG_KEYS = {"clipped"}
"""Those of them that say yes or no."""

OTHER_NAMES = {
    "reward": {"score", "scores", "rewards", "return", "total_reward"},
    "rewards": {"score", "scores", "reward"},
    "prompt": {"query", "queries", "question", "instruction", "input", "prompts"},
    "response": {"completion", "answer", "output", "generation", "responses", "text"},
    "response_tokens": {"tokens", "completion_tokens", "output_tokens", "pieces"},
    "response_ids": {"completion_ids", "output_ids", "token_ids"},
    "step": {"steps", "iteration", "iter", "global_step", "training_step"},
    "ref_logprobs": {"reference_logprobs", "ref_log_probs", "ref_log_prob"},
    "logprobs": {"log_probs", "old_logprobs", "old_log_probs"},
    "new_logprobs": {"new_log_probs"},
    "gold": {"gold_score", "gold_reward", "true_reward"},
    "components": {"reward_components", "parts"},
    "length": {"response_length", "num_tokens"},
    "metrics": {"stats"},
}
"""What other programs call a field; never read under that name, but named where the right one is missing."""

SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""JSON has no such numbers; they are written as these texts. Python's own ``NaN`` without quotes is read as well."""

MARK = b"\xef\xbb\xbf"
"""What some programs write at the beginning of a UTF-8 file."""

MOST_FILE_BYTES = 8_000_000_000
MOST_LINE_BYTES = 64_000_000
MOST_STEP_BYTES = 256_000_000  # all lines of one step together: they are held in memory at the same time
MOST_LINES = 5_000_000
MOST_RESPONSES = 2_000_000  # of a file
MOST_TOKENS_IN_ALL = 500_000_000  # of a file
MOST_STEPS = 1_000_000
MOST_SAMPLES = 65_536  # of one step
MOST_TOKENS = 65_536  # of one response
MOST_ALTERNATIVES = 20
MOST_TEXT = 2_000_000  # characters
MOST_PIECES, MOST_PIECES_TEXT = 1_000_000, 20_000_000  # token ids that a file gives a text, and characters of these texts
MOST_PROBES = 1000
MOST_NAMES = 4000  # different names of metrics, or of reward components, that a file has
MOST_DEPTH = 8


def plain_number(value: float | None) -> Any:
    """A number as JSON can hold it."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def plain_array(array: np.ndarray) -> Any:
    """A numpy array as lists; float32 with as many digits as bring the same float32 back."""
    values = np.ascontiguousarray(array)
    if values.dtype == bool:
        return values.tolist()
    listed = orjson.loads(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY))
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return listed
    return _with_specials(listed, values)


def _with_specials(listed: Any, values: np.ndarray) -> Any:
    if values.ndim > 1:
        return [_with_specials(row, array) for row, array in zip(listed, values, strict=True)]
    return [plain_number(float(value)) if plain is None else plain for plain, value in zip(listed, values, strict=True)]


def encode(line: dict[str, Any]) -> str:
    """One line of a log, in ASCII: half a surrogate pair, which some models write, survives as an escape. Raises ValueError for NaN."""
    return json.dumps(line, ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"
