"""The answers of a replay, token by token: the watched prompts, else prompts that the run sampled more than once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlhf_studio.analysis.compare.runs import numbers
from rlhf_studio.analysis.doctor import judges
from rlhf_studio.analysis.doctor.run_data import RunData
from rlhf_studio.analysis.logs.shareable import pieces_without_secrets, without_secrets
from rlhf_studio.analysis.series import evenly, rounded
from rlhf_studio.config import RunConfig
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RolloutRecord, WatchRecord
from rlhf_studio.token_texts import words_of

MOST_ANSWERS, MOST_FRAMES, FEWEST_FRAMES = 4, 64, 8
MOST_TOKENS = 36_000
"""Of all frames together: a payload stays below 300 kB when it is compressed."""
MOST_LETTERS = 160
"""Of one token, or of one word of a text whose tokens nobody knows."""
MOST_STEPS_READ = 96
DIGITS = 3
LABELS = {"advantages": "advantage", "kl": "KL"}
"""What may colour the tokens, the best first."""
SHAPING = ("scaling", "score_clip", "length_penalty", "missing_eos_penalty")
"""Settings of the reward by which the policy is paid another score than the charts draw."""
MOST_ERROR = 0.2
"""The controller of β takes a KL as at most this share away from its target."""
GIVES_EARLY = ("python", "http")
"""Reward components that may give a part of the score to tokens before the last."""


@dataclass(frozen=True)
class Frame:
    """One answer at one step; ``arrays`` has what may colour its tokens, by name, shape (T,).

    ``pieces`` are its words, and ``stopped`` is None, where nobody knows its tokens. Arrays of another length, as in a damaged record, are
    left out: nobody knows which token a number belongs to.
    """

    step: int
    prompt: str
    response: str
    pieces: list[str]
    arrays: Mapping[str, np.ndarray]
    score: float
    gold: float | None
    stopped: bool | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", {name: array for name, array in self.arrays.items() if array.shape == (len(self.pieces),)})


def answers_of(reader: RunReader, run: RunData) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """(``answers``, ``tokens``) as :func:`~rlhf_studio.analysis.replay.payload.replay_of` gives them."""
    watched = _watched(reader, run)
    films = watched or _sampled(reader, run)
    films = _within_budget([_evenly(film, MOST_FRAMES) for film in films])
    frames = [frame for film in films for frame in film if frame.arrays]
    quantity = next((name for name in LABELS if frames and all(name in frame.arrays for frame in frames)), None)
    most = _most_tokens([len(frame.pieces) for film in films for frame in film])
    answers: list[dict[str, Any]] = []
    for film in films:
        prompts = {frame.prompt for frame in film}
        own = len(prompts) > 1
        shown = [_shown(frame, quantity, most, own) for frame in film]
        answers.append({"prompt": "" if own else without_secrets(prompts.pop()), "watched": bool(watched), "frames": shown})
    known = [abs(value) for answer in answers for frame in answer["frames"] for value in frame["values"] if value is not None]
    if quantity is None or not known:
        return answers, None
    return answers, {"quantity": quantity, "label": LABELS[quantity], "centre": 0.0, "limit": max(known)}


def _most_tokens(lengths: Sequence[int]) -> int:
    """How many tokens of an answer are shown: all where the budget holds them, else the longest answers are cut to one length."""
    left = MOST_TOKENS
    for place, length in enumerate(ordered := sorted(lengths)):
        if length * (len(ordered) - place) > left:
            return max(1, left // (len(ordered) - place))
        left -= length
    return max([1, *lengths])


def _shown(frame: Frame, quantity: str | None, most: int, own_prompt: bool) -> dict[str, Any]:
    tokens = [piece if len(piece) <= MOST_LETTERS else piece[: MOST_LETTERS - 1] + "…" for piece in pieces_without_secrets(frame.pieces)]
    values = numbers(rounded(frame.arrays[quantity], DIGITS)) if quantity and quantity in frame.arrays else [None] * len(tokens)
    left_out = max(0, len(tokens) - most)
    shown = {"step": frame.step, **({"prompt": without_secrets(frame.prompt)} if own_prompt else {})}
    score, gold = numbers([frame.score, np.nan if frame.gold is None else frame.gold])
    return {
        **shown,
        "tokens": tokens[:most],
        "values": values[:most],
        "score": score,
        "gold": gold,
        "stopped": False if left_out else frame.stopped,
        "left_out": left_out,
    }


def _watched(reader: RunReader, run: RunData) -> list[list[Frame]]:
    """Films of the watched prompts that tell what the run tells: those first whose gold fell most from the first answer to the newest,
    where the gold of the run has fallen at its end; else those whose score and gold rose most."""
    gold_of_run = judges.gold(run)
    gold_falls = gold_of_run is not None and bool(judges.fall(gold_of_run).surely[-1])
    ends: dict[int, list[np.ndarray]] = defaultdict(list)
    for _, record in reader.watched(ends=True):
        judged = [np.nan if value is None else value for value in (record.score, record.gold)]
        ends[record.sample].append(np.array(judged, np.float64))

    def tells(sample: int) -> float:
        score, gold = np.nan_to_num(ends[sample][-1] - ends[sample][0])
        return float(-gold if gold_falls else score + gold)

    chosen = sorted((sample for sample in ends if len(ends[sample]) > 1), key=tells, reverse=True)[:MOST_ANSWERS]
    films: dict[int, list[Frame]] = {sample: [] for sample in chosen}
    for step, record in reader.watched_at(_evenly(reader.watched_steps(), MOST_FRAMES), chosen):
        films[record.sample].append(_watched_frame(run, step, record))
    return list(films.values())


def _watched_frame(run: RunData, step: int, record: WatchRecord) -> Frame:
    arrays = {name: record.arrays[name] for name in ("kl",) if name in record.arrays}
    advantages = watched_advantages(run, step, record)
    arrays |= {} if advantages is None else {"advantages": advantages}
    score = np.nan if record.score is None else record.score
    pieces, stopped = (record.pieces, record.stopped) if record.pieces else (words_of(record.response), None)
    return Frame(step, record.prompt, record.response, pieces, arrays, score, record.gold, stopped)


def watched_advantages(run: RunData, step: int, record: WatchRecord) -> np.ndarray | None:
    """What the advantages of a watched answer would be if the next step learned from it, in score units, shape (T,).

    From the numbers on record: r_t = −β kl_t, and the score on the last token; then generalised advantage estimation with the critic's
    values (Schulman et al. 2015, arXiv:1506.02438, eq. 16), as the engine does it. None where that is not exact: without a critic or a
    known β, where the score is shaped before the policy sees it, or where a part of it may go to earlier tokens.
    """
    ppo, reward = run.config.ppo, run.config.reward
    shaped = _shapes(run.config) or ppo.whiten_rewards
    early = any(component.kind in GIVES_EARLY for component in reward.components)
    known = {"values", "kl"} <= record.arrays.keys() and record.score is not None and np.isfinite(record.score)
    if not run.settings_known or not ppo.has_critic or shaped or early or not known or not len(record.arrays["kl"]):
        return None
    beta = 0.0 if ppo.kl_placement == "loss" else _beta_after(run, step)
    if not np.isfinite(beta):
        return None
    rewards = -beta * record.arrays["kl"].astype(np.float64)
    rewards[-1] += record.score
    return advantages(rewards, record.arrays["values"].astype(np.float64), ppo.gamma, ppo.lam)


def _beta_after(run: RunData, step: int) -> float:
    """β of the step that follows, since watched prompts are answered after the update; NaN where it is not known.

    After the newest step the adaptive controller's rule gives it (Ziegler et al. 2019, arXiv:1909.08593).
    """
    ppo, coefficients = run.config.ppo, run.column("objective/kl_coef")
    known = np.flatnonzero(np.isfinite(coefficients))
    later = known[run.steps[known] > step]
    if len(later) or not len(known):
        return float(coefficients[later[0]]) if len(later) else np.nan
    newest, kl = known[-1], run.column("objective/kl")[known[-1]]
    if ppo.kl_controller == "fixed" or not np.isfinite(kl):
        return float(coefficients[newest])
    error = np.clip(kl / run.setting("ppo.kl_target")[newest] - 1, -MOST_ERROR, MOST_ERROR)
    return float(coefficients[newest] * (1 + error * ppo.batch_size / ppo.kl_horizon))


def advantages(rewards: np.ndarray, values: np.ndarray, gamma: float, lam: float) -> np.ndarray:
    """A_t = δ_t + γλ A_{t+1} with δ_t = r_t + γ V_{t+1} − V_t, from the last token back; all of shape (T,)."""
    deltas = rewards + gamma * np.append(values[1:], 0.0) - values
    result, following = np.empty(len(deltas)), 0.0
    for at in range(len(deltas) - 1, -1, -1):
        result[at] = following = deltas[at] + gamma * lam * following
    return result


def score_of(record: RolloutRecord, shaped: bool) -> float:
    """The score as the charts draw it: the sum of its parts, where the recorded one was ``shaped`` before the policy saw it."""
    return sum(record.parts.values()) if shaped and record.parts else record.score


def is_shaped(run: RunData) -> bool:
    """Whether any part of the run paid the policy a score that was scaled or clipped, or less a penalty."""
    return run.settings_known and shapes(run.config, run.reward_changes)


def shapes(config: RunConfig, changes: Sequence[tuple[int, str]]) -> bool:
    """Whether these settings, or those before the ``changes`` (step, setting) of the reward, shape the score."""
    return any(setting.removeprefix("reward.") in SHAPING for _, setting in changes) or _shapes(config)


def _shapes(config: RunConfig) -> bool:
    return any(getattr(config.reward, name) not in ("none", None, 0) for name in SHAPING)


def _sampled(reader: RunReader, run: RunData) -> list[list[Frame]]:
    """Films of the prompts that were sampled at most of the steps read; one film of the best answers where no prompt came twice."""
    by_prompt: dict[str, dict[int, RolloutRecord]] = defaultdict(dict)
    best: dict[int, RolloutRecord] = {}
    shaped = is_shaped(run)
    for step in _evenly(reader.rollout_steps(), MOST_STEPS_READ):
        for recorded in reader.rollouts(step):
            record = replace(recorded, score=score_of(recorded, shaped))
            by_prompt[record.prompt].setdefault(step, record)
            if step not in best or _worth(record) > _worth(best[step]):
                best[step] = record
    often = sorted(by_prompt.values(), key=lambda records: (len(records), max(records) - min(records)), reverse=True)
    chosen = [records for records in often[:MOST_ANSWERS] if len(records) > 1] or ([best] if best else [])
    return [[_sampled_frame(reader, step, records[step]) for step in sorted(records)] for records in chosen]


def _worth(record: RolloutRecord) -> float:
    return record.score if np.isfinite(record.score) else -np.inf


def _sampled_frame(reader: RunReader, step: int, record: RolloutRecord) -> Frame:
    tokens = reader.rollout(step, record.sample).tokens
    pieces, arrays = (words_of(record.response), {}) if tokens is None else (tokens.response_pieces, tokens.arrays)
    known = tokens is not None and not np.any(tokens.response_ids < 0)  # else the pieces may be words: the last one is no end token
    return Frame(step, record.prompt, record.response, pieces, arrays, record.score, record.gold, record.stopped if known else None)


def _evenly(items: Sequence[Any], most: int) -> list[Any]:
    return [items[index] for index in evenly(len(items), most)]


def _within_budget(films: list[list[Frame]]) -> list[list[Frame]]:
    """Fewer frames of each film, but at least :data:`FEWEST_FRAMES`, where all tokens together are too many."""
    tokens = sum(len(frame.pieces) for film in films for frame in film)
    part = min(1.0, MOST_TOKENS / max(1, tokens))
    return [_evenly(film, max(FEWEST_FRAMES, int(len(film) * part))) for film in films]
