"""A run as JSON Lines: everything that pages and analyses read, so that the file opens again as the same run.

What is not in the file: when something happened, commands, the log of the engine, checkpoints, events of steps that were trained again
since, and paths of this machine (:mod:`.shareable`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rlhf_studio import __version__
from rlhf_studio.analysis.logs.shape import FORMAT, TOKEN_KEYS, VERSION, LogFields, encode, plain_array, plain_number
from rlhf_studio.analysis.logs.shareable import Shareable
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import ProbeScore, RolloutRecord, StepEpisodes, TokenRecord, WatchRecord

AT_ONCE = 200  # steps whose metrics are read together


def lines_of(reader: RunReader, progress: Callable[[float], None] = lambda fraction: None) -> Iterator[str]:
    """The lines of a run up to its present step, one after the other; ``progress`` hears how far it is, from 0 to 1.

    A step that is trained meanwhile is not in it. Raises StoreError.
    """
    status, config, leaving = reader.status(), reader.config(), Shareable(reader.run_dir)
    settings = leaving.settings(config.model_dump(mode="json"))
    yield encode(
        {
            "kind": "run",
            "format": FORMAT,
            "version": VERSION,
            "program": __version__,
            "name": leaving.text(status.name),
            "model": settings["model"]["policy"],
            "settings": settings if reader.origin().settings_known else {},
            "total_steps": status.total_steps,
            "device": status.device,
            **({"lengths": "words"} if status.origin.words else {}),
        }
    )
    yield from map(encode, _of_no_step(reader, status.step, leaving))
    first = 0
    specials = _specials(reader)
    while rows := reader.metrics_since(first, AT_ONCE):
        for step, metrics in rows:
            if step > status.step:
                return
            numbers = {
                name: plain_number(specials.get((step, name), math.nan) if value is None else value) for name, value in metrics.items()
            }
            yield encode({"kind": "step", "step": step, "metrics": numbers})
            yield from map(encode, _of_step(reader, step))
            progress(step / max(1, status.step))
        first = rows[-1][0]


def _specials(reader: RunReader) -> dict[tuple[int, str], float]:
    return {(step, name): value for step, name, value in reader.non_finite()}


def _of_no_step(reader: RunReader, last: int, leaving: Shareable) -> Iterator[LogFields]:
    """What is small enough to be read at once: events, changes, watched answers, probes, the text of tokens."""
    yield from _events(reader, last, leaving)
    for change in reader.changes():
        old, new = leaving.data(change.old), leaving.data(change.new)
        yield {"kind": "change", "step": change.step, "setting": change.setting, "old": old, "new": new}
    for step, answer in reader.watched():
        yield {"kind": "watched", "step": step, **_watched(answer)}
    probes, scores = reader.probes()
    for probe in probes:
        yield {"kind": "probe", "probe": probe.probe, "prompt": probe.prompt, "pieces": probe.pieces}
    for step, score in scores:
        yield {"kind": "probe_score", "step": step, **_probe_score(score)}
    if pieces := reader.pieces():
        yield {"kind": "pieces", "pieces": {str(token): piece for token, piece in pieces.items()}}


def _events(reader: RunReader, last: int, leaving: Shareable) -> Iterator[LogFields]:
    """The diary of the run as it goes now: not of steps that were trained again since."""
    after = 0
    while events := reader.events_since(after, of="now"):
        for event in events:
            if event.step > last:
                continue
            yield {
                "kind": "event",
                "step": event.step,
                "level": event.level,
                "event": event.kind,
                "text": leaving.text(event.text),
                "data": _plain(leaving.data(event.data)),
                "time": event.time,
            }
        after = events[-1].id


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return plain_number(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _of_step(reader: RunReader, step: int) -> Iterator[LogFields]:
    for record in reader.rollouts(step):
        yield {"kind": "rollout", "step": step, **rollout(reader.rollout(step, record.sample))}
    for episodes in reader.episodes(step).values():
        yield {"kind": "episodes", "step": step, **_episodes(episodes)}


def rollout(record: RolloutRecord) -> LogFields:
    """One recorded response under the names of :mod:`.shape`."""
    line: LogFields = {
        "sample": record.sample,
        "prompt": record.prompt,
        "response": record.response,
        "reward": plain_number(record.score),
        "components": {name: plain_number(value) for name, value in record.parts.items()},
        "kl": plain_number(record.kl),
        "length": record.length,
    }
    line |= {} if record.gold is None else {"gold": plain_number(record.gold)}
    line |= {} if record.stopped is None else {"stopped": record.stopped}
    return line | ({} if record.tokens is None else _tokens(record.tokens))


def _tokens(tokens: TokenRecord) -> LogFields:
    names = {ours: key for key, ours in TOKEN_KEYS.items()}
    line: LogFields = {
        "prompt_tokens": tokens.prompt_pieces,
        "response_tokens": tokens.response_pieces,
        **{names[name]: plain_array(array) for name, array in tokens.arrays.items() if name in names},
        "top_tokens": {str(token): piece for token, piece in tokens.top_pieces.items()},
        **{name: plain_array(getattr(tokens, name)) for name in ("top_ids", "top_logprobs", "ref_top_ids", "ref_top_logprobs")},
    }
    for name in ("prompt_ids", "response_ids"):
        ids = getattr(tokens, name)
        line |= {name: plain_array(ids)} if not np.any(ids < 0) else {}
    settings = {name: getattr(tokens, name) for name in ("gamma", "lam", "kl_coef")}
    return line | {name: plain_number(value) for name, value in settings.items()}


def _watched(answer: WatchRecord) -> LogFields:
    line: LogFields = {"sample": answer.sample, "prompt": answer.prompt, "response": answer.response, "reward": plain_number(answer.score)}
    known = {"gold": plain_number(answer.gold), "kl": plain_number(answer.kl), "stopped": answer.stopped, "pieces": answer.pieces or None}
    line |= {name: value for name, value in known.items() if value is not None}
    return line | ({"arrays": {name: plain_array(array) for name, array in answer.arrays.items()}} if answer.arrays else {})


def _probe_score(score: ProbeScore) -> LogFields:
    arrays = ("logprobs", "top_ids", "top_logprobs", "start_logprobs", "logprobs_of_start")
    return {"probe": score.probe, **{name: plain_array(getattr(score, name)) for name in arrays}}


def _episodes(episodes: StepEpisodes) -> LogFields:
    return {
        "lengths": plain_array(episodes.lengths),
        "response_ids": plain_array(episodes.response_ids),
        "tokens": {name: plain_array(array) for name, array in episodes.tokens.items()},
        "rewards": plain_array(episodes.scores),
        "components": {name: plain_array(array) for name, array in episodes.parts.items()},
        "stopped": plain_array(np.asarray(episodes.stopped, bool)),
        **({} if episodes.gold is None else {"gold": plain_array(episodes.gold)}),
        **({} if episodes.reading is None else {"reading": plain_array(episodes.reading)}),
    }
