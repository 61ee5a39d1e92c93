"""Checked lines of a log as the records that the run folder keeps. What a line does not say stays unknown: no number is made up.

An unknown number is NaN, an unknown token id is -1, and an array that is not given is not there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlhf_studio.analysis.logs.line import LogLine
from rlhf_studio.analysis.logs.shape import FLAG_KEYS, MOST_ALTERNATIVES, MOST_SAMPLES, MOST_STEPS, MOST_TOKENS, SPECIAL, TOKEN_KEYS
from rlhf_studio.language import S_
from rlhf_studio.runs.means import mean_metrics, part_metrics
from rlhf_studio.runs.records import (
    CRITIC_QUANTITIES,
    EPISODE_TOKENS,
    EventRecord,
    Probe,
    ProbeScore,
    RolloutRecord,
    SettingChange,
    StepEpisodes,
    TokenRecord,
    WatchRecord,
)

READ = {
    "run": {"kind", "format", "version", "program", "name", "settings", "total_steps", "device", "model", "lengths"},
    "step": {"kind", "step", "metrics"},
    "rollout": {
        *("kind", "step", "sample", "prompt", "response", "reward", "components", "gold", "kl", "length", "stopped"),
        *("prompt_tokens", "prompt_ids", "response_tokens", "response_ids", *TOKEN_KEYS),
        *("top_ids", "top_logprobs", "ref_top_ids", "ref_top_logprobs", "top_tokens", "gamma", "lam", "kl_coef"),
    },
    "watched": {"kind", "step", "sample", "prompt", "response", "reward", "gold", "kl", "stopped", "pieces", "arrays"},
    "pieces": {"kind", "pieces"},
    "episodes": {"kind", "step", "lengths", "response_ids", "tokens", "rewards", "components", "stopped", "gold", "reading"},
    "probe": {"kind", "probe", "prompt", "pieces"},
    "probe_score": {"kind", "step", "probe", "logprobs", "top_ids", "top_logprobs", "start_logprobs", "logprobs_of_start"},
    "change": {"kind", "step", "setting", "old", "new"},
    "event": {"kind", "step", "level", "event", "text", "data", "time"},
}
"""The fields that are read of each kind of line; others are passed over, and the run's diary names them."""

ROUNDING = 0.1
"""Nats. In bfloat16, which has 8 bits, a log-probability of 0 may come out as far above it."""

LEVELS = ("info", "warning", "error")


def known(value: float | None) -> float:
    """The number, or NaN for one that is not known."""
    return math.nan if value is None else value


def step_of(line: LogLine, least: int = 0) -> int:
    """The step of a line. Raises ConfigError without one."""
    step = line.whole_number("step", MOST_STEPS, least)
    return line.missing("step", S_("every response needs the training step it belongs to")) if step is None else step


def rollout(line: LogLine, sample: int) -> RolloutRecord:
    """A response; ``sample`` is its number within the step where the line gives none. Raises ConfigError."""
    pieces, ids = line.texts("response_tokens", MOST_TOKENS), line.ids("response_ids")
    count = line.whole_number("length", MOST_TOKENS)
    if pieces is None:
        for key in (*TOKEN_KEYS, "top_ids", "ref_top_ids"):
            if line.has(key):
                line.missing("response_tokens", S_(f"{key} needs the text of each token beside it"))
        if count is None and ids is None:
            line.missing("response_tokens", S_("give the text of each token, or at least length, the number of tokens"))
    tokens = None if pieces is None else _tokens(line, pieces)
    length = count if count is not None else len(pieces if pieces is not None else ids if ids is not None else ())
    prompt, response = line.text("prompt"), line.text("response")
    if response is None:
        response = line.missing("response", S_("give the text of the response")) if pieces is None else "".join(pieces)
    if prompt is None:
        parts = line.texts("prompt_tokens", MOST_TOKENS)
        prompt = line.missing("prompt", S_("give the text of the prompt")) if parts is None else "".join(parts)
    return RolloutRecord(
        sample=_sample(line, sample),
        prompt=prompt,
        response=response,
        score=known(line.number_of("reward")),
        parts=line.numbers("components"),
        gold=line.number_of("gold"),
        kl=_kl(line, tokens),
        length=length,
        stopped=line.flag("stopped"),
        tokens=tokens,
    )


def _sample(line: LogLine, otherwise: int | None = None) -> int:
    sample = line.whole_number("sample", MOST_SAMPLES - 1)
    sample = otherwise if sample is None else sample
    return line.missing("sample", S_("say which it is, from 0")) if sample is None else sample


def _kl(line: LogLine, tokens: TokenRecord | None) -> float:
    """As the line says, or the sum of the differences of both log-probabilities, or NaN."""
    if line.has("kl") or tokens is None or not {"logprobs", "ref_logprobs"} <= tokens.arrays.keys():
        return known(line.number_of("kl"))
    return float(np.sum(tokens.arrays["logprobs"].astype(np.float64) - tokens.arrays["ref_logprobs"].astype(np.float64)))


def _tokens(line: LogLine, pieces: list[str]) -> TokenRecord:
    count = len(pieces)
    given = {ours: (line.flags if key in FLAG_KEYS else line.reals)(key, (count,)) for key, ours in TOKEN_KEYS.items()}
    arrays = {name: array for name, array in given.items() if array is not None}
    if "kl" not in arrays and {"logprobs", "ref_logprobs"} <= arrays.keys():
        arrays["kl"] = arrays["logprobs"] - arrays["ref_logprobs"]
    prompt_pieces, prompt_ids, ids = line.texts("prompt_tokens", MOST_TOKENS), line.ids("prompt_ids"), line.ids("response_ids", (count,))
    if prompt_ids is None:
        prompt_ids = _unknown_ids(len(prompt_pieces or ()))
    top, ref_top = (_alternatives(line, prefix, count) for prefix in ("", "ref_"))
    return TokenRecord(
        prompt_ids=prompt_ids,
        response_ids=_unknown_ids(count) if ids is None else ids,
        prompt_pieces=prompt_pieces or [],
        response_pieces=pieces,
        arrays=arrays,
        top_ids=top[0],
        top_logprobs=top[1],
        ref_top_ids=ref_top[0],
        ref_top_logprobs=ref_top[1],
        top_pieces=line.pieces("top_tokens"),
        gamma=known(line.number_of("gamma")),
        lam=known(line.number_of("lam")),
        kl_coef=known(line.number_of("kl_coef")),
    )


def too_likely(record: RolloutRecord) -> bool:
    """Whether a token has a log-probability above 0 by more than rounding: that is no log-probability."""
    arrays = {} if record.tokens is None else record.tokens.arrays
    return any(np.any(arrays[name] > ROUNDING) for name in ("logprobs", "ref_logprobs", "new_logprobs") if name in arrays)


def _unknown_ids(count: int) -> np.ndarray:
    return np.full(count, -1, np.int32)


def _alternatives(line: LogLine, prefix: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest tokens at each position and their log-probabilities, shapes (T, k); k is 0 where they are not given."""
    ids = line.ids(f"{prefix}top_ids", (count, -1))
    if ids is None:
        return np.zeros((count, 0), np.int32), np.zeros((count, 0), np.float32)
    if ids.shape[1] > MOST_ALTERNATIVES:
        line.fail(f"{prefix}top_ids", S_(f"it has {ids.shape[1]} tokens for each position, and at most {MOST_ALTERNATIVES} are kept"))
    logprobs = line.reals(f"{prefix}top_logprobs", ids.shape)
    return ids, line.missing(f"{prefix}top_logprobs", S_(f"{prefix}top_ids needs it")) if logprobs is None else logprobs


def watched(line: LogLine) -> WatchRecord:
    """An answer to a watched prompt. Raises ConfigError."""
    prompt, response = line.text("prompt"), line.text("response")
    pieces, arrays = line.texts("pieces", MOST_TOKENS) or [], line.members("arrays")
    if not all(name in EPISODE_TOKENS or name in ("kl", "entropy") for name in arrays):
        line.fail("arrays", S_(f"it may hold {', '.join((*EPISODE_TOKENS, 'kl', 'entropy'))}"))
    read = {name: line.reals(name, (len(pieces),), arrays) for name in arrays}
    return WatchRecord(
        sample=_sample(line),
        prompt=line.missing("prompt", S_("give the watched prompt")) if prompt is None else prompt,
        response=line.missing("response", S_("give the answer")) if response is None else response,
        score=known(line.number_of("reward")),
        gold=line.number_of("gold"),
        kl=line.number_of("kl"),
        stopped=line.flag("stopped"),
        pieces=pieces,
        arrays={name: array for name, array in read.items() if array is not None},
    )


def episodes(line: LogLine, pieces: dict[int, str]) -> StepEpisodes:
    """All episodes of a step. Raises ConfigError."""
    lengths = line.ids("lengths")
    if lengths is None:
        line.missing("lengths", S_("give the number of response tokens of each episode"))
    if len(lengths) > MOST_SAMPLES:
        line.fail("lengths", S_(f"a step has at most {MOST_SAMPLES:,} episodes"))
    count, total = (len(lengths),), (int(lengths.astype(np.int64).sum()),)
    ids, scores, gold = line.ids("response_ids", total), line.reals("rewards", count), line.reals("gold", count)
    parts, tokens, stopped = line.members("components"), line.members("tokens"), line.fields.get("stopped")
    read_tokens = {name: line.reals(name, total, tokens) for name in tokens}
    missing = [name for name in EPISODE_TOKENS if name not in CRITIC_QUANTITIES and read_tokens.get(name) is None]
    if missing:
        line.missing(f"tokens.{missing[0]}", S_("episodes need it"))
    if not isinstance(stopped, list) or len(stopped) != count[0] or not set(map(type, stopped)) <= {bool}:
        line.fail("stopped", S_(f"it must be a list of {count[0]} times true or false"))
    return StepEpisodes(
        lengths=lengths,
        response_ids=line.missing("response_ids", S_("episodes need it")) if ids is None else ids,
        tokens={name: array for name, array in read_tokens.items() if array is not None},
        scores=line.missing("rewards", S_("episodes need it")) if scores is None else scores,
        gold=gold,
        parts={name: array for name in parts if (array := line.reals(name, count, parts)) is not None},
        stopped=np.array(stopped, bool),
        pieces=pieces,
        reading=line.ids("reading", (*count, 2)),
    )


def probe(line: LogLine) -> Probe:
    """A probe sentence. Raises ConfigError."""
    number, prompt, pieces = line.whole_number("probe", MOST_SAMPLES), line.text("prompt"), line.texts("pieces", MOST_TOKENS)
    if number is None or prompt is None or pieces is None:
        line.missing(S_("probe, prompt or pieces"), S_("a probe needs all three"))
    return Probe(number, prompt, pieces)


def probe_score(line: LogLine, probes: dict[int, Probe]) -> ProbeScore:
    """What a step's policy gives to a probe. Raises ConfigError, also for a probe that no line before it has named."""
    number = line.whole_number("probe", MOST_SAMPLES)
    if number is None or number not in probes:
        line.fail("probe", S_("no line before this one has a probe of this number"))
    count = len(probes[number].pieces)
    top = line.ids("top_ids", (count, -1))
    shape = (count, -1) if top is None else top.shape
    arrays: dict[str, Any] = {"logprobs": line.reals("logprobs", (count,)), "top_ids": top}
    arrays |= {name: line.reals(name, shape) for name in ("top_logprobs", "start_logprobs", "logprobs_of_start")}
    for name, array in arrays.items():
        if array is None:
            line.missing(name, S_("a probe's score needs it"))
    return ProbeScore(number, **arrays)


def change(line: LogLine) -> SettingChange:
    """A setting that was changed during the run. Raises ConfigError."""
    setting = line.text("setting")
    if not setting:
        line.missing("setting", S_("name the setting that was changed"))
    return SettingChange(step_of(line, 1), setting, line.fields.get("old"), line.fields.get("new"))


def event(line: LogLine) -> EventRecord:
    """A line of the run's diary. Raises ConfigError."""
    level, text = line.fields.get("level", "info"), line.text("text")
    if level not in LEVELS:
        line.fail("level", S_(f"it must be one of {', '.join(LEVELS)}"))
    if text is None:
        line.missing("text", S_("say what happened"))
    return EventRecord(level, line.text("event") or "log", text, _with_numbers(line.members("data")))


def _with_numbers(value: Any) -> Any:
    """The data of an event, with the numbers that JSON has no way to write."""
    if isinstance(value, dict):
        return {key: _with_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    return SPECIAL[value] if isinstance(value, str) and value in SPECIAL else value


@dataclass(frozen=True)
class LoggedResponse:
    """What a line says of a response as a whole; None for what it does not say. :class:`RolloutRecord` has NaN there."""

    prompt: str
    score: float | None
    gold: float | None
    kl: float | None
    length: int
    stopped: bool | None
    parts: dict[str, float]


def logged_response(line: LogLine, record: RolloutRecord) -> LoggedResponse:
    """The same of the line that ``record`` was read from."""
    score = None if math.isnan(record.score) and not line.has("reward") else record.score
    knows_kl = line.has("kl") or (record.tokens is not None and "kl" in record.tokens.arrays)
    kl = None if math.isnan(record.kl) and not knows_kl else record.kl
    return LoggedResponse(record.prompt, score, record.gold, kl, record.length, record.stopped, record.parts)


def metrics_of(responses: Sequence[LoggedResponse]) -> dict[str, float]:
    """What the responses of one step say of its metrics: means over those of which a number is known, and the errors of these means.

    None where no response has the number, NaN where one says NaN.
    """
    rows: dict[str, list[tuple[str, float | None]]] = {
        "objective/scores": [(response.prompt, response.score) for response in responses],
        "objective/kl": [(response.prompt, response.kl) for response in responses],
        "gold/score": [(response.prompt, response.gold) for response in responses],
        "tokens/response_length": [(response.prompt, float(response.length)) for response in responses],
        "tokens/cut_off": [(response.prompt, None if response.stopped is None else float(not response.stopped)) for response in responses],
    }
    metrics: dict[str, float] = {}
    for name, pairs in rows.items():
        known_values = [(prompt, value) for prompt, value in pairs if value is not None]
        values = np.array([value for _, value in known_values], np.float64)
        metrics |= mean_metrics(name, values, [prompt for prompt, _ in known_values])
    return metrics | part_metrics([response.parts for response in responses])
