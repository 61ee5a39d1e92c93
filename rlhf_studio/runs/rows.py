"""The records of a run as rows of ``run.db``: one codec for each kind of record, and the queries over the metrics.

The functions ``insert_*`` run inside the writer's transaction. The functions that read raise one of :data:`~rlhf_studio.runs.values.DAMAGE`
for rows that this program did not write. Databases of earlier versions lack some tables and columns: what they did not record is read as
missing.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

import numpy as np

from rlhf_studio.config import STAGES
from rlhf_studio.runs.codec import (
    ARRAY_COLUMNS,
    Arrays,
    Fields,
    RecordTable,
    StoredArray,
    as_json,
    choice,
    columns_of,
    converted,
    integer,
    members,
    numbers,
    packed,
    real,
    real_members,
    text,
    texts,
    truth,
    unpacked,
)
from rlhf_studio.runs.evaluation.answers import Answer
from rlhf_studio.runs.records import (
    EventRecord,
    Origin,
    Probe,
    ProbeScore,
    ResponseTokens,
    RolloutRecord,
    Scratch,
    SettingChange,
    State,
    StepEpisodes,
    StoredEvent,
    TokenRecord,
    WatchRecord,
    is_held_out_loss,
)
from rlhf_studio.runs.values import (
    check_whole,
    decode_array,
    decode_json,
    decode_number,
    decode_pieces,
    decode_text,
    encode_pieces,
    encode_text,
)

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

_ENDED = truth("stopped", UNKNOWN)


# --- the run's own row ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunRow:
    """The run's row as it is stored; what its fields mean, :class:`~rlhf_studio.runs.records.RunStatus` says.

    Attributes:
        model: what is trained. ``working_folder`` is where relative names in the settings start, ``program`` the version that made the run.
        memory_low, memory_high: the least and the most bytes that were estimated before the start; None without an estimate.
    """

    name: str
    recipe: str
    model: str
    state: State
    total_steps: int
    created_at: float
    working_folder: str
    program: str
    phase: str = ""
    fraction: float | None = None
    step: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    epoch: int = 0
    seq: int = 0
    device: str = ""
    cause: str = ""
    pid: int | None = None
    memory_low: float | None = None
    memory_high: float | None = None
    origin: Origin = Origin()
    stage: str = "ppo"


def _read_origin(stored: Any) -> Origin:
    origin = Origin(**members({} if stored is None else stored))
    texts = (origin.parent, origin.sweep, origin.imported, origin.log_of, origin.program, origin.reward)
    known = (*texts, *origin.changes.keys(), *origin.settings_given, *(origin.controls or ()))
    if not all(isinstance(name, str) for name in known) or {
        type(flag) for flag in (origin.settings_known, origin.words, origin.followed)
    } != {bool}:
        raise ValueError("the run's origin has other kinds of values than it should")
    check_whole(*(() if origin.parent_step is None else (origin.parent_step,)))
    return origin


_ORIGIN = as_json("origin", read=_read_origin, write=lambda origin: None if origin == Origin() else asdict(origin))
RUN = RecordTable(
    "run",
    RunRow,
    *map(text, ("name", "recipe", "model")),
    choice("state", get_args(State)),
    text("phase"),
    real("fraction"),
    *map(integer, ("step", "total_steps")),
    *map(real, ("created_at", "started_at", "ended_at")),
    *map(integer, ("epoch", "seq")),
    *map(text, ("device", "cause")),
    integer("pid"),
    *map(text, ("working_folder", "program")),
    *map(real, ("memory_low", "memory_high")),  # SQLite's own whole numbers end at 9.2e18
    _ORIGIN,
    choice("stage", tuple(STAGES), otherwise="ppo"),  # earlier versions knew PPO alone
)


def write_origin(connection: sqlite3.Connection, origin: Origin) -> None:
    """Say anew where the run comes from."""
    connection.execute("UPDATE run SET origin = ?", (_ORIGIN.encode(origin),))


def read_run(connection: sqlite3.Connection) -> RunRow:
    """The run's row."""
    row = RUN.first(connection)
    if row is None:
        raise ValueError("the run's row is missing")
    return row


# --- recorded responses, with every token's numbers ----------------------------------------------------------------------------

ROLLOUTS = RecordTable(
    "rollouts",
    RolloutRecord,
    integer("sample"),
    *map(text, ("prompt", "response")),
    numbers("score", "gold", "kl", flags="flags"),
    as_json("parts", flags="parts_flags", read=real_members),
    integer("length"),
    _ENDED,
)
TOKENS = RecordTable(
    "token_texts",
    TokenRecord,
    *map(texts, ("prompt_pieces", "response_pieces")),
    converted(
        "top_pieces",
        lambda pieces: encode_pieces({str(token): piece for token, piece in pieces.items()}),
        lambda stored: {int(token): decode_text(piece) for token, piece in members(decode_json(stored, None)).items()},
    ),
    numbers("gamma", "lam", "kl_coef", flags="flags"),
)
_TABLES = {"prompt_ids": "int32", "response_ids": "int32", "top_ids": "int32", "ref_top_ids": "int32"}
_TABLES |= {"top_logprobs": "float32", "ref_top_logprobs": "float32"}
TOKEN_ARRAYS = Arrays(_TABLES, {"arrays": "quantity/"})
ANSWERS = RecordTable(
    "answers",
    Answer,
    text("policy"),
    *map(integer, ("place", "draw")),
    numbers("judge", "ref_logprob", flags="number_flags"),
    integer("ref_length"),
    as_json("members", flags="members_flags"),
    later=True,
)
"""What an answer of an evaluation has beside what every recorded response has."""


def insert_rollouts(connection: sqlite3.Connection, step: int, records: Sequence[RolloutRecord]) -> None:
    """Store a step's recorded episodes, with the token arrays of those that have them.

    For the answers of an evaluation, their own fields are stored too.
    """
    ROLLOUTS.insert(connection, records, step=step)
    for record in records:
        if record.tokens is not None:
            TOKENS.insert(connection, [record.tokens], step=step, sample=record.sample)
            _insert_arrays(connection, "token_arrays", TOKEN_ARRAYS.encode(record.tokens), step=step, sample=record.sample)
        if isinstance(record, Answer):
            ANSWERS.insert(connection, [record], step=step, sample=record.sample)


def _insert_arrays(connection: sqlite3.Connection, table: str, rows: Iterable[StoredArray], **keys: Any) -> None:
    columns = f"{', '.join(keys)}, {ARRAY_COLUMNS}"
    marks = ", ".join("?" * (len(keys) + 4))
    connection.executemany(f"INSERT OR REPLACE INTO {table} ({columns}) VALUES ({marks})", [(*keys.values(), *row) for row in rows])


def read_rollouts(connection: sqlite3.Connection, step: int) -> list[RolloutRecord]:
    """The recorded responses of a step, without their tokens."""
    rows = ROLLOUTS.select(connection, f"WHERE step = ? AND {OF_NOW} ORDER BY sample", (step,))
    return [RolloutRecord(**values, tokens=None) for _, values in rows]


def read_rollout(connection: sqlite3.Connection, step: int, sample: int) -> RolloutRecord | None:
    """One recorded response, with its tokens where they were recorded."""
    which = "WHERE step = ? AND sample = ?"
    for _, values in ROLLOUTS.select(connection, f"{which} AND {OF_NOW}", (step, sample)):
        tokens = None
        for _, own in TOKENS.select(connection, which, (step, sample)):
            stored = connection.execute(f"SELECT {ARRAY_COLUMNS} FROM token_arrays {which} ORDER BY rowid", (step, sample))
            tokens = TokenRecord(**own, **TOKEN_ARRAYS.decode(stored))
        return RolloutRecord(**values, tokens=tokens)
    return None


def read_response_tokens(connection: sqlite3.Connection, step: int, limit: int) -> list[ResponseTokens]:
    """Ids and texts of the tokens of a step's first ``limit`` recorded responses."""
    rows = connection.execute(
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
            stopped=_ENDED.decode(stopped),
            pieces=[] if pieces is None else decode_pieces(pieces),
            ids=None if kind is None else decode_array(kind, shape, data),
        )
        for sample, response, stopped, pieces, kind, shape, data in rows
    ]


def read_answers(connection: sqlite3.Connection, after: int = 0, until: float = math.inf) -> list[Answer]:
    """The answers that an evaluation run has recorded in the steps after ``after`` to ``until``, in the order of step and sample."""
    which, steps = f"WHERE step > ? AND step <= ? AND {OF_NOW} ORDER BY step, sample", (after, until)
    own = dict(ANSWERS.select(connection, which, steps, keys=("step", "sample")))
    recorded = ROLLOUTS.select(connection, which, steps, keys=("step", "sample")) if own else ()
    return [Answer(**values, **own[key], tokens=None) for key, values in recorded if key in own]


# --- all episodes of a step, answers to the watched prompts, probes ------------------------------------------------------------

EPISODES, WATCHED_ARRAYS, PROBE_ARRAYS = "episodes", "watched", "probe"
"""Whose arrays the rows of ``step_arrays`` are."""
_ARRAYS_OF = {
    EPISODES: Arrays(
        {"lengths": "int32", "response_ids": "int32", "scores": "float32", "stopped": "bool", "gold": "float32", "reading": "int32"},
        {"tokens": "token/", "parts": "part/"},
        frozenset({"gold", "reading"}),
    ),
    WATCHED_ARRAYS: Arrays({}, {"arrays": ""}),
    PROBE_ARRAYS: Arrays(
        {
            "logprobs": "float32",
            "top_ids": "int32",
            "top_logprobs": "float32",
            "start_logprobs": "float32",
            "logprobs_of_start": "float32",
        }
    ),
}
WATCHED = RecordTable(
    "watched",
    WatchRecord,
    integer("sample"),
    *map(text, ("prompt", "response")),
    numbers("score", "gold", "kl", flags="flags"),
    truth("stopped"),
    texts("pieces", empty=[]),
)
PROBES = RecordTable("probes", Probe, integer("probe"), text("prompt"), texts("pieces"), later=True)


def _insert_step_arrays(connection: sqlite3.Connection, owner: str, step: int, sample: int, record: Any) -> None:
    _insert_arrays(connection, "step_arrays", _ARRAYS_OF[owner].encode(record), step=step, owner=owner, sample=sample)


def _read_step_arrays(connection: sqlite3.Connection, owner: str, condition: str, parameters: Sequence[Any] = ()) -> dict[Any, Fields]:
    """(step, sample) -> the fields that are arrays, of the steps for which ``condition`` holds."""
    if not columns_of(connection, "step_arrays"):
        return {}
    rows_by_key: dict[Any, list[StoredArray]] = {}
    for step, sample, name, kind, shape, data in connection.execute(
        f"SELECT step, sample, {ARRAY_COLUMNS} FROM step_arrays WHERE owner = ? AND {condition} ORDER BY step, sample", (owner, *parameters)
    ):
        rows_by_key.setdefault((step, sample), []).append((name, kind, shape, data))
    return {key: _ARRAYS_OF[owner].decode(rows) for key, rows in rows_by_key.items()}


def insert_episodes(connection: sqlite3.Connection, step: int, episodes: StepEpisodes) -> None:
    """Store all episodes of a step, and the text of tokens that are new to the run."""
    _insert_step_arrays(connection, EPISODES, step, 0, episodes)
    connection.executemany(
        "INSERT OR IGNORE INTO pieces VALUES (?, ?)", [(token, encode_text(piece)) for token, piece in episodes.pieces.items()]
    )


def read_pieces(connection: sqlite3.Connection) -> dict[int, str]:
    """The text of every token id that the run's responses have."""
    if not columns_of(connection, "pieces"):
        return {}
    return {token: decode_text(piece) for token, piece in connection.execute("SELECT token, piece FROM pieces")}


def read_episodes(connection: sqlite3.Connection, first: int, last: int) -> dict[int, StepEpisodes]:
    """By step, those of the steps ``first`` to ``last``; ``pieces`` is the same mapping in each."""
    pieces = read_pieces(connection)
    by_step = _read_step_arrays(connection, EPISODES, "step BETWEEN ? AND ?", (first, last))
    return {step: StepEpisodes(**arrays, pieces=pieces) for (step, _), arrays in by_step.items()}


def read_episode_arrays(connection: sqlite3.Connection, step: int, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Some of the arrays of one step's episodes as they are stored, by their names there."""
    if not columns_of(connection, "step_arrays"):
        return {}
    rows = connection.execute(
        f"""SELECT {ARRAY_COLUMNS} FROM step_arrays
            WHERE step = ? AND owner = ? AND sample = 0 AND name IN ({", ".join("?" * len(names))}) AND {OF_NOW}""",
        (step, EPISODES, *names),
    )
    return {decode_text(name): decode_array(kind, shape, data) for name, kind, shape, data in rows}


def insert_watched(connection: sqlite3.Connection, step: int, records: Sequence[WatchRecord]) -> None:
    """Store answers to the watched prompts; an earlier answer of the same step and sample is replaced."""
    WATCHED.insert(connection, records, or_else="REPLACE", step=step)
    for record in records:
        connection.execute("DELETE FROM step_arrays WHERE step = ? AND owner = ? AND sample = ?", (step, WATCHED_ARRAYS, record.sample))
        _insert_step_arrays(connection, WATCHED_ARRAYS, step, record.sample, record)


def read_watched(connection: sqlite3.Connection, condition: str) -> list[tuple[int, WatchRecord]]:
    """(step, answer) by step and sample; ``condition`` says which steps, in SQL."""
    arrays = _read_step_arrays(connection, WATCHED_ARRAYS, condition)
    rows = WATCHED.select(connection, f"WHERE {condition} ORDER BY step, sample", keys=("step",))
    return [(step, WatchRecord(**values, **arrays.get((step, values["sample"]), {}))) for (step,), values in rows]


def insert_probes(connection: sqlite3.Connection, probes: Sequence[Probe]) -> None:
    """Store the run's probes, instead of earlier ones."""
    connection.execute("DELETE FROM probes")
    PROBES.insert(connection, probes)


def insert_probe_scores(connection: sqlite3.Connection, step: int, scores: Sequence[ProbeScore]) -> None:
    """Store what a step's policy gives to the probes."""
    for score in scores:
        _insert_step_arrays(connection, PROBE_ARRAYS, step, score.probe, score)


def read_probe_scores(connection: sqlite3.Connection, condition: str) -> list[tuple[int, ProbeScore]]:
    """(step, score) by step and probe; ``condition`` says which steps, in SQL."""
    by_probe = _read_step_arrays(connection, PROBE_ARRAYS, condition)
    return [(step, ProbeScore(probe, **arrays)) for (step, probe), arrays in by_probe.items()]


# --- settings changed while the run went on, events, what a step holds while it waits ------------------------------------------

CHANGES = RecordTable("changes", SettingChange, integer("step"), text("setting"), as_json("old"), as_json("new"), later=True)
EVENTS = RecordTable("events", EventRecord, *map(text, ("level", "kind", "text")), as_json("data", flags="data_flags", read=members))
COMMANDS: RecordTable[dict[str, Any]] = RecordTable("commands", dict, text("kind"), as_json("payload", flags="payload_flags"))
"""What the app asks of an engine; with its number it is a :class:`~rlhf_studio.runs.records.Command`."""


def insert_changes(connection: sqlite3.Connection, at: float, changes: Sequence[SettingChange]) -> None:
    """Store changes; ``at`` is in seconds since 1970."""
    CHANGES.insert(connection, changes, at=at)


def insert_event(connection: sqlite3.Connection, at: float, step: int, record: EventRecord) -> None:
    """Store one line for people; ``at`` is in seconds since 1970."""
    EVENTS.insert(connection, [record], at=at, step=step)


def read_events(connection: sqlite3.Connection, after: int, limit: int, of: EventsOf, *, newest: bool = False) -> list[StoredEvent]:
    """At most ``limit`` events with a larger id than ``after``, oldest first; with ``newest`` the last of them."""
    which = f"WHERE id > ? AND {_EVENTS[of]} ORDER BY id {'DESC' if newest else 'ASC'} LIMIT ?"
    events = [
        StoredEvent(number, at, step, **values)
        for (number, at, step), values in EVENTS.select(connection, which, (after, limit), keys=("id", "at", "step"))
    ]
    return events[::-1] if newest else events


_SCRATCH_ARRAYS = Arrays(_TABLES, {"arrays": "token/"})
_SCRATCH_TEXTS, _SCRATCH_SETTINGS = ("prompt_pieces", "response_pieces", "top_pieces"), ("gamma", "lam", "kl_coef")


def insert_scratch(connection: sqlite3.Connection, scratch: Scratch) -> None:
    """Store what a step holds, instead of what it held before."""
    connection.execute("DELETE FROM scratch")
    connection.executemany(
        "INSERT INTO scratch (sample, step, phase, data) VALUES (?, ?, ?, ?)",
        [(record.sample, scratch.step, scratch.phase, _scratch_blob(record)) for record in scratch.rollouts],
    )


def _scratch_blob(record: RolloutRecord) -> bytes:
    tokens = record.tokens
    if tokens is None:
        raise ValueError("an episode is kept with its tokens")
    header = {
        "episode": {field.name: getattr(record, field.name) for field in fields(record) if field.name != "tokens"},
        "texts": {name: getattr(tokens, name) for name in _SCRATCH_TEXTS},
        "settings": {name: getattr(tokens, name) for name in _SCRATCH_SETTINGS},
    }
    return packed(header, list(_SCRATCH_ARRAYS.encode(tokens)))


def read_scratch(connection: sqlite3.Connection) -> Scratch | None:
    """What a step holds that waits between two of its phases; None when none does."""
    if not columns_of(connection, "scratch"):
        return None
    rows = connection.execute("SELECT step, phase, data FROM scratch ORDER BY sample").fetchall()
    return Scratch(rows[0][0], rows[0][1], [_scratch_record(data) for _, _, data in rows]) if rows else None


def _scratch_record(blob: bytes) -> RolloutRecord:
    header, rows = unpacked(blob)
    pieces = header["texts"]
    pieces["top_pieces"] = {int(token): piece for token, piece in pieces["top_pieces"].items()}
    tokens = TokenRecord(**pieces, **header["settings"], **_SCRATCH_ARRAYS.decode(rows))
    return RolloutRecord(tokens=tokens, **header["episode"])


# --- metrics -------------------------------------------------------------------------------------------------------------------


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
        rows = connection.execute(
            f"""SELECT value FROM (SELECT step FROM steps WHERE {OF_NOW}) AS wanted LEFT JOIN metrics
                ON metrics.step = wanted.step AND metrics.metric = (SELECT id FROM metric_names WHERE name = ?) ORDER BY wanted.step""",
            (encode_text(metric),),
        )
        columns[metric] = np.array([np.nan if value is None else value for (value,) in rows], np.float64)
    return steps, columns


def read_metric_names(connection: sqlite3.Connection) -> dict[int, str]:
    """Names of the metrics by the numbers that stand for them."""
    return {number: decode_text(name) for number, name in connection.execute("SELECT id, name FROM metric_names ORDER BY id")}


def metric_names_of_now(connection: sqlite3.Connection) -> list[str]:
    """The names of the metrics that any step of the run as it goes now has."""
    rows = connection.execute(f"SELECT name FROM metric_names WHERE id IN (SELECT metric FROM metrics WHERE {OF_NOW}) ORDER BY id")
    return [decode_text(name) for (name,) in rows]


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


def spread(connection: sqlite3.Connection, metric: str, most: int) -> list[float]:
    """The finite values of a metric at no more than ``most`` steps, evenly spread from the first to the last."""
    steps = [row[0] for row in connection.execute(f"SELECT step FROM steps WHERE {OF_NOW} ORDER BY step")]
    chosen = steps if len(steps) <= most else [steps[round(place * (len(steps) - 1) / (most - 1))] for place in range(most)]
    rows = connection.execute(
        f"""SELECT value FROM metrics WHERE metric = (SELECT id FROM metric_names WHERE name = ?) AND value IS NOT NULL
            AND step IN ({", ".join("?" * len(chosen))}) ORDER BY step""",
        (encode_text(metric), *chosen),
    )
    return [value for (value,) in rows]


def best_first(connection: sqlite3.Connection, steps: Sequence[int], metric: str) -> list[tuple[int, float]]:
    """(step, value) of the policies after ``steps``, the highest value first; of equal values the newest first.

    The step after a policy's own samples with it, so that step's value is the policy's. A policy without one is left out. A loss on
    held-out examples is measured at the step itself, and the lowest comes first.
    """
    at, order = ("step", "value") if is_held_out_loss(metric) else ("step - 1", "value DESC")
    ranked = connection.execute(
        f"""SELECT {at}, value FROM metrics WHERE metric = (SELECT id FROM metric_names WHERE name = ?) AND value IS NOT NULL
            AND {OF_NOW} AND {at} IN ({", ".join("?" * len(steps))}) ORDER BY {order}, step DESC""",
        (encode_text(metric), *steps),
    )
    return ranked.fetchall()


def last_value(connection: sqlite3.Connection, metric: str) -> float | None:
    """A metric's value at the newest step."""
    row = connection.execute(
        f"""SELECT value FROM metrics WHERE metric = (SELECT id FROM metric_names WHERE name = ?)
           AND step = (SELECT max(step) FROM steps WHERE {OF_NOW})""",
        (metric,),
    ).fetchone()
    return row[0] if row else None
