"""What the Live page gets about texts and tokens: the samples of a step, the numbers of one response, and the watched answers.

As pure as :mod:`rlhf_studio.ui.live.payloads`: records go in, JSON comes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlhf_studio.analysis import token_card
from rlhf_studio.analysis.reward_model.report import reward_report
from rlhf_studio.analysis.series import evenly
from rlhf_studio.config import PPOConfig, RunConfig
from rlhf_studio.language import _
from rlhf_studio.runs.evaluation.answers import Answer
from rlhf_studio.runs.records import PHASES, RolloutRecord, TokenRecord, WatchRecord
from rlhf_studio.ui.live import charts
from rlhf_studio.ui.live.payloads import encode_numbers, encode_text, finite, rounded

MOST_STEPS_READ = 32  # of a long run, for the scale of all its colours and for its clearest token
MOST_EVENTS_READ = 1000  # of a run's end, for its newest measurement
WORD, SIGN = re.compile(r"[^\W\d_]"), re.compile(r"\s*<.*>\s*")
"""A token with a letter, and one as tokenizers write the end of a text: ``<|endoftext|>``, ``</s>``."""
CLEAR_MOVE = 0.05  # of a probability, in one step
IN_PAIRS = ("reward_model", "dpo")
"""The stages whose recorded examples are pairs."""
ANSWER_ARRAYS = ("kl", "values", "entropy", "loss")


def samples(reader: Any, step: int, sample: int) -> bytes:
    """The sample table of one step, as :func:`samples_payload`; ``reader`` is a RunReader."""
    config = reader.config()
    with reader.snapshot():
        if config.stage == "evaluation":
            rollouts = reader.answers(step - 1, step)
        else:
            rollouts = [reader.rollout(step, record.sample) for record in reader.rollouts(step)]
    ppo = config.ppo if isinstance(config, RunConfig) else None
    return samples_payload(step, rollouts, sample, config.stage in IN_PAIRS, ppo, on_record=on_record_of(reader, step))


def tokens(reader: Any, step: int, sample: int) -> bytes:
    """Every number of one response, as :func:`tokens_payload`; ``reader`` is a RunReader."""
    return tokens_payload(step, reader.rollout(step, sample), ppo_of(reader), on_record=on_record_of(reader, step))


@dataclass(frozen=True)
class OnRecord:
    """What a step has recorded of all its episodes.

    Attributes:
        numbers: whether it has recorded what the numbers of tokens can be computed from.
        reading: as in :class:`~rlhf_studio.runs.records.StepEpisodes`.
    """

    numbers: bool = False
    reading: np.ndarray | None = None

    def cut(self, sample: int) -> list[int] | None:
        """[tokens of a response's text that the reward read, all tokens of it]; None when the reward read all of them."""
        if self.reading is None or sample >= len(self.reading):
            return None
        read, total = self.reading[sample].tolist()
        return [read, total] if read < total else None


def on_record_of(reader: Any, step: int) -> OnRecord:
    """What is on record of a step's episodes; ``reader`` is a RunReader."""
    arrays = reader.episode_arrays(step, ["lengths", "reading"])
    return OnRecord("lengths" in arrays, arrays.get("reading"))


def ppo_of(reader: Any) -> PPOConfig | None:
    """The PPO settings of a run, which the token card needs; None for a run of another stage."""
    config = reader.config()
    return config.ppo if isinstance(config, RunConfig) else None


def samples_payload(
    step: int,
    rollouts: Sequence[RolloutRecord],
    sample: int,
    in_pairs: bool = False,
    ppo: PPOConfig | None = None,
    *,
    on_record: OnRecord = OnRecord(),
) -> bytes:
    """The sample table of one step, the scale of its colours, and as ``chosen`` every number of one response (:func:`tokens_payload`).

    A page that shows a new step so needs one question only. The reply's ``pairs`` says that the rows are chosen and rejected responses in
    turn.

    Args:
        step: the step of all ``rollouts``.
        rollouts: its responses.
        sample: which response is ``chosen``. Where the step has no such sample, it is the response with the best score, of those with
            recorded tokens if there are any. In a step without responses, ``chosen`` is null.
        in_pairs: whether the run's stage records chosen and rejected responses.
        ppo, on_record: as in :func:`tokens_payload`.
    """
    arrays = [record.tokens.arrays for record in rollouts if record.tokens is not None]
    head = {"step": step, "rows": [_row(record) for record in rollouts], "scales": scales(arrays)}
    table = encode_text({**head, "pairs": in_pairs and sides(rollouts)})
    best = max(rollouts, key=_worth, default=None)
    chosen = next((record for record in rollouts if record.sample == sample), best)
    return table[:-1] + b',"chosen":' + (tokens_payload(step, chosen, ppo, on_record=on_record) if chosen else b"null") + b"}"


def _worth(record: RolloutRecord) -> tuple[bool, bool, float, int]:
    """The order in which responses are shown: those with recorded tokens first, then by score, then by number."""
    score = finite(record.score)
    return record.tokens is not None, score is not None, score or 0.0, -record.sample


def scales(arrays: Sequence[Mapping[str, np.ndarray]]) -> dict[str, dict[str, float]]:
    """For each quantity that colours tokens: the ``centre`` of its scale, and the largest distance from it (``limit``) in a whole step.

    The centre is 0, or for a centred quantity the mean over the step's tokens. A response with one value everywhere, such as the 0 of a
    value head that has not learned yet, gets no colour around a mean; so it does not move the mean either, unless there are no others. A
    quantity without a finite number is left out.
    """
    spans = Spans()
    spans.add(arrays)
    return spans.scales()


def run_scales(reader: Any) -> dict[str, Any]:
    """One scale for all steps of a run, so that the colours of different steps can be compared; ``reader`` is a RunReader.

    It comes from ``used`` of the ``of`` steps that have recorded responses: all of them, or :data:`MOST_STEPS_READ` spread evenly from the
    first to the last.
    """
    steps, spans = reader.rollout_steps(), Spans()
    chosen = [steps[index] for index in evenly(len(steps), MOST_STEPS_READ)]
    for step in chosen:
        spans.add([tokens.arrays for _, tokens in _recorded(reader, step)])
    return {"scales": spans.scales(), "used": len(chosen), "of": len(steps), "step": steps[-1] if steps else 0}


def _recorded(reader: Any, step: int) -> list[tuple[int, TokenRecord]]:
    """Number and tokens of the responses of a step that have token records."""
    with reader.snapshot():
        records = [reader.rollout(step, record.sample) for record in reader.rollouts(step)]
    return [(record.sample, record.tokens) for record in records if record.tokens is not None]


def clearest_move(reader: Any) -> dict[str, Any]:
    """The token that shows best what an update does, as ``token``: {step, sample, token}; null when none moved clearly.

    Looked at are the steps of :func:`run_scales`. A token counts when its probability changed by :data:`CLEAR_MOVE` or more from when it
    was sampled to the update's last pass, the way its advantage asked for, and where it is a part of a word: not a mark, nor a sign that
    ends a text. Of these it is the one with the largest product of both.
    """
    best, move = 0.0, None
    steps = reader.rollout_steps()
    for step in (steps[index] for index in evenly(len(steps), MOST_STEPS_READ)):
        for sample, tokens in _recorded(reader, step):
            moves = _moves(tokens.arrays)
            moves *= [bool(WORD.search(piece)) and not SIGN.fullmatch(piece) for piece in tokens.response_pieces[: len(moves)]]
            if len(moves) and moves.max() > best:
                best, move = float(moves.max()), {"step": step, "sample": sample, "token": int(moves.argmax())}
    return {"token": move}


def _moves(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Change of probability times advantage of each token, 0 where it does not count; shape (0,) where a number was not recorded."""
    if not {"logprobs", "new_logprobs", "advantages"} <= arrays.keys():
        return np.zeros(0)
    sampled, after, advantages = (np.asarray(arrays[name], np.float64) for name in ("logprobs", "new_logprobs", "advantages"))
    used = token_card.loss_advantages(arrays)
    with np.errstate(invalid="ignore", over="ignore"):
        change = np.exp(after) - np.exp(sampled)
        product = change * advantages
        counts = (np.abs(change) >= CLEAR_MOVE) & (product > 0) & (change * used > 0) & np.isfinite(product)
    return np.where(counts, product, 0.0)


class Spans:
    """The span of the finite numbers of each quantity that colours tokens, over any number of responses."""

    def __init__(self) -> None:
        # (quantity, whether the response had one value everywhere) -> (lowest, highest, sum, count)
        self._spans: dict[tuple[str, bool], tuple[float, float, float, int]] = {}

    def add(self, arrays: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Take in the token arrays of some responses."""
        for quantity in charts.QUANTITIES:
            if quantity.scale == "flag":
                continue
            parts = [np.asarray(values, np.float64) for by_name in arrays if (values := _values(by_name, quantity.name)) is not None]
            for part in parts:
                numbers = part[np.isfinite(part)]
                if len(numbers):
                    self._take(quantity.name, numbers, quantity.centred and _is_flat(numbers, quantity.noise))

    def _take(self, name: str, numbers: np.ndarray, flat: bool) -> None:
        low, high, total, count = self._spans.get((name, flat), (np.inf, -np.inf, 0.0, 0))
        span = min(low, numbers.min()), max(high, numbers.max()), total + numbers.sum(), count + len(numbers)
        self._spans[name, flat] = span

    def scales(self) -> dict[str, dict[str, float]]:
        """As :func:`scales`."""
        result = {}
        for quantity in charts.QUANTITIES:
            span = self._spans.get((quantity.name, False)) or self._spans.get((quantity.name, True))
            if span is not None:
                low, high, total, count = span
                middle = total / count if quantity.centred else 0.0
                centre, limit = rounded(np.array([middle, max(high - middle, middle - low)]))
                result[quantity.name] = {"centre": float(centre), "limit": float(limit)}
        return result


def _is_flat(numbers: np.ndarray, noise: float) -> bool:
    """Whether a response has one value everywhere; a single token alone does not say so, unless its value is 0."""
    return bool(np.ptp(numbers) <= noise and (len(numbers) > 1 or abs(numbers[0]) <= noise))


def _values(arrays: Mapping[str, np.ndarray], name: str) -> np.ndarray | None:
    computed = {"loss": token_card.loss, "log_ratio": token_card.log_ratio}
    return computed[name](arrays) if name in computed else arrays.get(name)


def _row(record: RolloutRecord) -> dict[str, Any]:
    """What the table shows of a response, and whether its tokens were ``recorded``; ``loss`` is the mean over the learned tokens of an
    example, which has no score; ``policy`` the name of who gave an answer of an evaluation."""
    loss = _values(record.tokens.arrays, "loss") if record.tokens is not None and not np.isfinite(record.score) else None
    mean = {} if loss is None or not np.isfinite(loss).any() else {"loss": float(rounded(np.nanmean(loss)))}
    policy = {"policy": record.policy} if isinstance(record, Answer) else {}
    return {**_sample(record), **mean, **policy, "length": record.length, "recorded": record.tokens is not None}


def sides(rollouts: Sequence[RolloutRecord]) -> bool:
    """Whether these are pairs: an even sample is the chosen response, the next one the rejected response to the same prompt."""
    chosen, rejected = rollouts[::2], rollouts[1::2]
    if not rejected or len(chosen) != len(rejected):
        return False
    pairs = zip(chosen, rejected, strict=True)
    return all(first.sample % 2 == 0 and other.sample == first.sample + 1 and first.prompt == other.prompt for first, other in pairs)


def _sample(record: RolloutRecord) -> dict[str, Any]:
    return {
        "sample": record.sample,
        "prompt": record.prompt,
        "response": record.response,
        "score": finite(record.score),
        "parts": [[name, finite(value)] for name, value in record.parts.items()],
        "gold": finite(record.gold),
        "kl": finite(record.kl),
        "stopped": record.stopped,
    }


def tokens_payload(step: int, record: RolloutRecord, ppo: PPOConfig | None = None, *, on_record: OnRecord = OnRecord()) -> bytes:
    """Every number of one response, for the inspector.

    Without token records, ``tokens`` is null, and ``kept`` says whether a lesson can compute the numbers, because the step has recorded its
    episodes. ``cut`` says how much of the text the reward read, if not all of it. ``chances`` are probabilities: of the sampled tokens by
    the name of the log-probability, of the likeliest tokens as ``top`` and ``ref_top``.

    Args:
        ppo: the settings of a PPO run: its tokens have a ``card``, see :func:`rlhf_studio.analysis.token_card.card`.
        on_record: what the step has recorded of its episodes.
    """
    text = {"step": step, **_sample(record), "length": record.length, "cut": on_record.cut(record.sample)}
    if record.tokens is None:
        return encode_text({**text, "tokens": None, "kept": on_record.numbers})
    return encode_text(text)[:-1] + b',"tokens":' + _tokens(record.tokens, record.score, ppo) + b"}"


def _tokens(tokens: TokenRecord, score: float, ppo: PPOConfig | None) -> bytes:
    arrays = tokens.arrays
    added = {"log_ratio": token_card.log_ratio(arrays), "loss": token_card.loss(arrays)}
    likely = {"top": tokens.top_logprobs, "ref_top": tokens.ref_top_logprobs}
    logprobs = {name: arrays[name] for name in token_card.CHANCES if name in arrays} | likely
    words = {
        "prompt_pieces": tokens.prompt_pieces,
        "response_pieces": tokens.response_pieces,
        "pieces": [[int(token), piece] for token, piece in tokens.top_pieces.items()],
        **({} if ppo is None else {"card": token_card.card(tokens, score, ppo)}),
    }
    numbers = {
        "response_ids": tokens.response_ids,
        "arrays": {
            **{name: np.ascontiguousarray(arrays[name], np.float32) for name in arrays if name in token_card.IN_SUMS},
            **{name: rounded(array) for name, array in (arrays | added).items() if array is not None and name not in token_card.IN_SUMS},
        },
        "chances": {name: token_card.chances(array) for name, array in logprobs.items()},
        "top_ids": np.ascontiguousarray(tokens.top_ids),
        "ref_top_ids": np.ascontiguousarray(tokens.ref_top_ids),
    }
    return encode_text(words)[:-1] + b"," + encode_numbers(numbers)[1:]


def scratch_payload(scratch: Any, sample: int, ppo: PPOConfig | None = None) -> bytes:
    """What a step holds while it waits between two phases: its rows, and the tokens of ``sample`` (of the first where there is no such).

    ``scratch`` is what RunReader.scratch() gives: ``step``, the last ``phase`` that is done, and ``rollouts`` with the arrays known so
    far, or None for a run that holds nothing; ``phase`` is null then. The answer's ``done`` says in words what the step has.
    """
    if scratch is None or not scratch.rollouts:
        return encode_text({"phase": None})
    rollouts = scratch.rollouts
    arrays = [record.tokens.arrays for record in rollouts if record.tokens is not None]
    head = {"phase": scratch.phase, "done": PHASES[scratch.phase].done, "step": scratch.step}
    head |= {"rows": [_row(record) for record in rollouts], "scales": scales(arrays)}
    chosen = next((record for record in rollouts if record.sample == sample), rollouts[0])
    return encode_text(head)[:-1] + b',"chosen":' + tokens_payload(scratch.step, chosen, ppo) + b"}"


MEASURED = "reward_model_measured"
"""The kind of the events that hold what a reward model was measured to give to held-out pairs."""


def measures(reader: Any) -> dict[str, Any]:
    """How good a reward model is: its newest measurement, and the step of that; both None for a run without one.

    ``reader`` is a RunReader. Raises ValueError for a record that is no measurement.
    """
    events = [event for event in reader.newest_events(MOST_EVENTS_READ, of="now") if event.kind == MEASURED]
    if not events:
        return {"step": None, "report": None}
    return {"step": events[-1].step, "report": reward_report(events[-1].data).as_data()}


# --- the watched prompts -------------------------------------------------------------------------------------------------------------


def first_and_newest(watched: Iterable[tuple[int, WatchRecord]]) -> dict[int, tuple[tuple[int, WatchRecord], tuple[int, WatchRecord]]]:
    """For each watched prompt its first and its newest answer, each with its step, by the prompt's number in ascending order."""
    first: dict[int, tuple[int, WatchRecord]] = {}
    newest: dict[int, tuple[int, WatchRecord]] = {}
    for step, record in watched:
        if record.sample not in first or step < first[record.sample][0]:
            first[record.sample] = (step, record)
        if record.sample not in newest or step > newest[record.sample][0]:
            newest[record.sample] = (step, record)
    return {sample: (first[sample], newest[sample]) for sample in sorted(newest)}


def watched_payload(watched: Iterable[tuple[int, WatchRecord]]) -> bytes:
    """The first and the newest answer to each watched prompt, as texts."""
    pairs = first_and_newest(watched)
    rows = [
        {"sample": sample, "prompt": newest[1].prompt, "before": _answer(*first), "now": _answer(*newest)}
        for sample, (first, newest) in pairs.items()
    ]
    return encode_text({"rows": rows})


def answer_payload(watched: Iterable[tuple[int, WatchRecord]], sample: int) -> bytes:
    """The first and the newest answer to one watched prompt, token by token; all prompts have one scale for each quantity.

    A negative ``sample`` asks for the first prompt. ``samples`` are all that are watched; in a run that watches none nothing else is there.
    """
    pairs = first_and_newest(watched)
    if not pairs and sample < 0:
        return encode_text({"samples": []})
    sample = min(pairs) if sample < 0 else sample
    pair = pairs.get(sample)
    if pair is None:
        return encode_text({"problem": _("This prompt is not watched in this run.")})
    both = {name: _answer(*answer) | {"tokens": _answer_tokens(answer[1])} for name, answer in zip(("before", "now"), pair, strict=True)}
    all_scales = scales([record.arrays for answers in pairs.values() for _step, record in answers])
    return encode_text({"samples": list(pairs), "sample": sample, "prompt": pair[1][1].prompt, **both, "scales": all_scales})


def _answer(step: int, record: WatchRecord) -> dict[str, Any]:
    return {
        "step": step,
        "response": record.response,
        "score": finite(record.score),
        "gold": finite(record.gold),
        "kl": finite(record.kl),
        "stopped": record.stopped,
    }


def _answer_tokens(record: WatchRecord) -> dict[str, Any] | None:
    """Pieces and arrays of one answer; None in a run that an earlier version recorded."""
    if not record.pieces:
        return None
    columns = {name: _values(record.arrays, name) for name in ANSWER_ARRAYS}
    arrays = {name: rounded(values, 4) for name, values in columns.items() if values is not None}
    return {
        "response_pieces": record.pieces,
        "arrays": {name: [finite(value) for value in values] for name, values in arrays.items()},
    }
