"""Records as rows of ``run.db`` and back: the two directions of each kind side by side.

``insert_*`` run inside the writer's transaction; ``read_*`` raise ValueError, TypeError or KeyError for rows nobody wrote.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from rlhf_studio.runs.records import EventRecord, ResponseTokens, RolloutRecord, StoredEvent, TokenRecord, is_held_out_loss
from rlhf_studio.runs.values import (
    check_real,
    check_whole,
    decode_array,
    decode_members,
    decode_number,
    decode_numbers,
    decode_pieces,
    decode_text,
    encode_array,
    encode_json,
    encode_numbers,
    encode_pieces,
    encode_text,
)

_WHOLE_ARRAYS = ("prompt_ids", "response_ids", "top_ids", "ref_top_ids")
_REAL_ARRAYS = ("top_logprobs", "ref_top_logprobs")
_QUANTITY = "quantity/"  # kept under a prefix, so that no quantity can be mistaken for the arrays above

OF_NOW = "step <= (SELECT run.step FROM run)"
"""Leaves out what is from before a resume and waits to be trained again."""

EventsOf = Literal["all", "now", "steps"]
_EVENTS: dict[EventsOf, str] = {
    "all": "TRUE",
    # An event that is older than its step, as that is recorded now, tells of an earlier time that the step was trained.
    "now": f"{OF_NOW} AND NOT EXISTS (SELECT 1 FROM steps WHERE steps.step = events.step AND steps.at > events.at)",
    "steps": f"{OF_NOW} AND EXISTS (SELECT 1 FROM steps WHERE steps.step = events.step AND steps.at = events.at)",
}

UNKNOWN = -1
"""Stored where a log of another program does not say whether a response ended by itself."""

ROLLOUT_COLUMNS = "sample, prompt, response, score, gold, kl, flags, parts, parts_flags, length, stopped"


def insert_rollouts(connection: sqlite3.Connection, step: int, records: Sequence[RolloutRecord]) -> None:
    """Store a step's recorded episodes, with their token arrays where they have them."""
    connection.executemany(
        f"INSERT INTO rollouts (step, {ROLLOUT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(step, *_rollout_row(record)) for record in records],
    )
    with_tokens = [(record.sample, record.tokens) for record in records if record.tokens is not None]
    connection.executemany(
        "INSERT INTO token_texts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(step, sample, *_token_texts(tokens)) for sample, tokens in with_tokens],
    )
    connection.executemany(
        "INSERT INTO token_arrays VALUES (?, ?, ?, ?, ?, ?)",
        [(step, sample, *row) for sample, tokens in with_tokens for row in _token_arrays(tokens)],
    )


def _rollout_row(record: RolloutRecord) -> tuple[Any, ...]:
    numbers, flags = encode_numbers({"score": record.score, "gold": record.gold, "kl": record.kl})
    return (
        record.sample,
        encode_text(record.prompt),
        encode_text(record.response),
        *numbers,
        flags,
        *encode_json(record.parts),
        record.length,
        UNKNOWN if record.stopped is None else int(record.stopped),
    )


def read_rollout(row: Sequence[Any], tokens: TokenRecord | None) -> RolloutRecord:
    """A row of :data:`ROLLOUT_COLUMNS` as a record."""
    sample, prompt, response, score, gold, kl, flags, parts, parts_flags, length, stopped = row
    numbers = decode_numbers({"score": score, "gold": gold, "kl": kl}, flags)
    check_whole(sample, length)
    known_parts = decode_members(parts, parts_flags)
    check_real(*known_parts.values())
    return RolloutRecord(
        sample=sample,
        prompt=decode_text(prompt),
        response=decode_text(response),
        parts=known_parts,
        length=length,
        stopped=_ended(stopped),
        tokens=tokens,
        **numbers,
    )


def _token_texts(tokens: TokenRecord) -> tuple[Any, ...]:
    numbers, flags = encode_numbers({"gamma": tokens.gamma, "lam": tokens.lam, "kl_coef": tokens.kl_coef})
    top_pieces = {str(key): piece for key, piece in tokens.top_pieces.items()}
    texts = [encode_pieces(pieces) for pieces in (tokens.prompt_pieces, tokens.response_pieces, top_pieces)]
    return (*texts, *numbers, flags)


def _token_arrays(tokens: TokenRecord) -> list[tuple[Any, ...]]:
    arrays = [(name, encode_array(getattr(tokens, name), "int32")) for name in _WHOLE_ARRAYS]
    arrays += [(name, encode_array(getattr(tokens, name), "float32")) for name in _REAL_ARRAYS]
    arrays += [(_QUANTITY + name, encode_array(array, "float32")) for name, array in tokens.arrays.items()]
    return [(encode_text(name), *encoded) for name, encoded in arrays]


def read_tokens(connection: sqlite3.Connection, step: int, sample: int) -> TokenRecord | None:
    """Every number of one response, or None when only its text was recorded."""
    row = connection.execute(
        "SELECT prompt_pieces, response_pieces, top_pieces, gamma, lam, kl_coef, flags FROM token_texts WHERE step = ? AND sample = ?",
        (step, sample),
    ).fetchone()
    if row is None:
        return None
    stored = connection.execute(
        "SELECT name, kind, shape, data FROM token_arrays WHERE step = ? AND sample = ? ORDER BY rowid", (step, sample)
    )
    arrays: dict[str, Any] = {decode_text(name): decode_array(kind, shape, data) for name, kind, shape, data in stored}
    return TokenRecord(
        prompt_pieces=decode_pieces(row[0]),
        response_pieces=decode_pieces(row[1]),
        top_pieces={int(key): decode_text(piece) for key, piece in decode_members(row[2], None).items()},
        arrays={name.removeprefix(_QUANTITY): array for name, array in arrays.items() if name.startswith(_QUANTITY)},
        **{name: arrays[name] for name in (*_WHOLE_ARRAYS, *_REAL_ARRAYS)},
        **decode_numbers({"gamma": row[3], "lam": row[4], "kl_coef": row[5]}, row[6]),
    )


def _ended(stopped: int) -> bool | None:
    return None if stopped == UNKNOWN else bool(stopped)


def read_response_tokens(connection: sqlite3.Connection, step: int, limit: int) -> list[ResponseTokens]:
    """Ids and texts of the tokens of a step's first ``limit`` recorded responses."""
    found = connection.execute(
        f"""SELECT sample, response, stopped, response_pieces, kind, shape, data
            FROM (SELECT step, sample, response, stopped FROM rollouts WHERE step = ? AND {OF_NOW} ORDER BY sample LIMIT ?)
            LEFT JOIN token_texts USING (step, sample)
            LEFT JOIN (SELECT * FROM token_arrays WHERE name = 'response_ids') USING (step, sample) ORDER BY sample""",
        (step, limit),
    )
    return [
        ResponseTokens(
            sample=sample,
            response=decode_text(response),
            stopped=_ended(stopped),
            pieces=[] if pieces is None else decode_pieces(pieces),
            ids=None if kind is None else decode_array(kind, shape, data),
        )
        for sample, response, stopped, pieces, kind, shape, data in found
    ]


def insert_event(connection: sqlite3.Connection, at: float, step: int, record: EventRecord) -> None:
    """Store one line for people; ``at`` is in seconds since 1970."""
    connection.execute(
        "INSERT INTO events (at, step, level, kind, text, data, data_flags) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (at, step, encode_text(record.level), encode_text(record.kind), encode_text(record.text), *encode_json(record.data)),
    )


def read_event(row: Sequence[Any]) -> StoredEvent:
    """A whole row of the table as a record."""
    number, at, step, level, kind, text, data, flags = row
    return StoredEvent(
        id=number,
        time=at,
        step=step,
        level=decode_text(level),
        kind=decode_text(kind),
        text=decode_text(text),
        data=decode_members(data, flags),
    )


def read_events(connection: sqlite3.Connection, after: int, limit: int, of: EventsOf, *, newest: bool = False) -> list[StoredEvent]:
    """At most ``limit`` events with a larger id than ``after``, oldest first; with ``newest`` the last of them."""
    found = connection.execute(
        f"SELECT * FROM events WHERE id > ? AND {_EVENTS[of]} ORDER BY id {'DESC' if newest else 'ASC'} LIMIT ?", (after, limit)
    ).fetchall()
    return [read_event(row) for row in (reversed(found) if newest else found)]


def read_metric(value: float | None, flag: str | None) -> float | None:
    """A metric as viewers get it: None where it was not finite. ``flag`` is checked all the same."""
    decode_number(value, flag)
    return value


def read_columns(connection: sqlite3.Connection, metrics: Sequence[str]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(steps, values by metric), NaN where there is no finite value."""
    steps = np.array([row[0] for row in connection.execute(f"SELECT step FROM steps WHERE {OF_NOW} ORDER BY step")], np.int64)
    columns = {}
    for metric in metrics:
        # The key of `metrics` begins with the step: one lookup for each step is quicker than reading the rows of all metrics.
        found = connection.execute(
            f"""SELECT value FROM (SELECT step FROM steps WHERE {OF_NOW}) AS wanted LEFT JOIN metrics
                ON metrics.step = wanted.step AND metrics.metric = (SELECT id FROM metric_names WHERE name = ?) ORDER BY wanted.step""",
            (encode_text(metric),),
        )
        columns[metric] = np.array([np.nan if value is None else value for (value,) in found], np.float64)
    return steps, columns


def read_metric_names(connection: sqlite3.Connection) -> dict[int, str]:
    """Names of the metrics by the numbers that stand for them."""
    return {number: decode_text(name) for number, name in connection.execute("SELECT id, name FROM metric_names ORDER BY id")}


def metric_names_of_now(connection: sqlite3.Connection) -> list[str]:
    """The names of the metrics that any step of the run as it goes now has."""
    found = connection.execute(f"SELECT name FROM metric_names WHERE id IN (SELECT metric FROM metrics WHERE {OF_NOW}) ORDER BY id")
    return [decode_text(name) for (name,) in found]


def _mean(connection: sqlite3.Connection, metric: str, order: str, steps: int) -> float | None:
    # avg() leaves NULL out, and with it every number that was not finite.
    mean: float | None = connection.execute(
        f"""SELECT avg(value) FROM metrics WHERE metric = (SELECT id FROM metric_names WHERE name = ?)
            AND step IN (SELECT step FROM steps WHERE {OF_NOW} ORDER BY step {order} LIMIT ?)""",
        (metric, steps),
    ).fetchone()[0]
    return mean if mean is None or math.isfinite(mean) else None  # a sum of huge numbers overflows


def tenth(steps: int) -> int:
    """How many steps a tenth of ``steps`` is: rounded down, and at least one."""
    return max(1, steps // 10)


def count_steps(connection: sqlite3.Connection) -> int:
    """How many steps are recorded."""
    count: int = connection.execute(f"SELECT count(*) FROM steps WHERE {OF_NOW}").fetchone()[0]
    return count


def first_and_last(connection: sqlite3.Connection, metrics: Iterable[str]) -> dict[str, tuple[float | None, float | None]]:
    """For each metric its value in the first recorded step, and the mean of the last tenth of them, finite values only.

    The first step alone: it samples with the policy as it was before training. Over a tenth of the steps it has begun to learn already.
    """
    size = tenth(count_steps(connection))
    return {metric: (_mean(connection, metric, "ASC", 1), _mean(connection, metric, "DESC", size)) for metric in metrics}


def best_first(connection: sqlite3.Connection, steps: Sequence[int], metric: str) -> list[tuple[int, float]]:
    """(step, value) of the policies after ``steps``, the highest value first; of equal values the newest first.

    The step after a policy's own samples with it, so that step's value is the policy's. A policy without one is left out. A loss on
    held-out examples is measured at the step itself, and the lowest comes first.
    """
    at, order = ("step", "value") if is_held_out_loss(metric) else ("step - 1", "value DESC")
    found = connection.execute(
        f"""SELECT {at}, value FROM metrics WHERE metric = (SELECT id FROM metric_names WHERE name = ?) AND value IS NOT NULL
            AND {OF_NOW} AND {at} IN ({", ".join("?" * len(steps))}) ORDER BY {order}, step DESC""",
        (encode_text(metric), *steps),
    )
    return found.fetchall()


def last_value(connection: sqlite3.Connection, metric: str) -> float | None:
    """A metric's value at the newest step."""
    row = connection.execute(
        f"""SELECT value FROM metrics WHERE metric = (SELECT id FROM metric_names WHERE name = ?)
           AND step = (SELECT max(step) FROM steps WHERE {OF_NOW})""",
        (metric,),
    ).fetchone()
    return row[0] if row else None
