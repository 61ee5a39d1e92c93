"""What a step leaves behind beside its recorded responses, as rows of ``run.db`` and back: all episodes, watched answers, probes, changes.

As in :mod:`rlhf_studio.runs.rows`, ``insert_*`` run inside the writer's transaction, and ``read_*`` raise ValueError, TypeError or
KeyError for rows nobody wrote. Databases of earlier versions lack some of the tables: what was not recorded is read as missing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from rlhf_studio.config import STAGES
from rlhf_studio.runs.records import (
    Origin,
    Probe,
    ProbeScore,
    RolloutRecord,
    Scratch,
    SettingChange,
    StepEpisodes,
    TokenRecord,
    WatchRecord,
)
from rlhf_studio.runs.values import (
    check_whole,
    decode_array,
    decode_json,
    decode_members,
    decode_numbers,
    decode_pieces,
    decode_text,
    encode_array,
    encode_json,
    encode_numbers,
    encode_pieces,
    encode_text,
)

EPISODES, WATCHED, PROBE = "episodes", "watched", "probe"
"""Whose arrays the rows of ``step_arrays`` are."""

ORIGIN_SINCE = 3
STAGE_SINCE = 4  # the version that says what a run does
"""The schema version that has the column ``run.origin``."""

_TOKEN, _PART = "token/", "part/"
_INTEGERS = {"lengths", "response_ids", "stopped", "reading", "top_ids"}
_PROBE_ARRAYS = ("logprobs", "top_ids", "top_logprobs", "start_logprobs", "logprobs_of_start")


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether the database has a table: those of earlier versions lack some."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone() is not None


def read_origin(connection: sqlite3.Connection) -> Origin:
    """Where the run comes from; nothing in databases of earlier versions."""
    if int(connection.execute("PRAGMA user_version").fetchone()[0]) < ORIGIN_SINCE:
        return Origin()
    stored = connection.execute("SELECT origin FROM run").fetchone()[0]
    if stored is None:
        return Origin()
    origin = Origin(**decode_members(stored, None))
    texts = (origin.parent, origin.sweep, origin.imported, *origin.changes.keys(), *origin.settings_given)
    if not all(isinstance(text, str) for text in texts) or type(origin.settings_known) is not bool:
        raise ValueError("the run's origin has other kinds of values than it should")
    check_whole(*(() if origin.parent_step is None else (origin.parent_step,)))
    return origin


def read_stage(connection: sqlite3.Connection) -> str:
    """What the run does (a key of ``config.STAGES``); earlier versions knew PPO alone."""
    if int(connection.execute("PRAGMA user_version").fetchone()[0]) < STAGE_SINCE:
        return "ppo"
    stage = connection.execute("SELECT stage FROM run").fetchone()[0]
    if stage is not None and stage not in STAGES:
        raise ValueError(f"unknown stage {stage!r}")
    return stage or "ppo"


def _insert_arrays(connection: sqlite3.Connection, step: int, owner: str, sample: int, arrays: Mapping[str, np.ndarray]) -> None:
    encoded = [(name, encode_array(array, "int32" if name in _INTEGERS else "float32")) for name, array in arrays.items()]
    connection.executemany(
        "INSERT OR REPLACE INTO step_arrays VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(step, owner, sample, encode_text(name), *parts) for name, parts in encoded],
    )


def _read_arrays(rows: Iterable[Sequence[Any]]) -> dict[tuple[int, int], dict[str, np.ndarray]]:
    """(step, sample) -> arrays by name, of rows (step, sample, name, kind, shape, data)."""
    found: dict[tuple[int, int], dict[str, np.ndarray]] = {}
    for step, sample, name, kind, shape, data in rows:
        found.setdefault((step, sample), {})[decode_text(name)] = decode_array(kind, shape, data)
    return found


_ARRAY_COLUMNS = "step, sample, name, kind, shape, data"


# --- all episodes of a step ------------------------------------------------------------------------------------------------------


def insert_episodes(connection: sqlite3.Connection, step: int, episodes: StepEpisodes) -> None:
    """Store all episodes of a step, and the text of tokens that are new to the run."""
    arrays = {"lengths": episodes.lengths, "response_ids": episodes.response_ids, "scores": episodes.scores}
    arrays["stopped"] = np.asarray(episodes.stopped).astype(np.int32)
    if episodes.gold is not None:
        arrays["gold"] = episodes.gold
    if episodes.reading is not None:
        arrays["reading"] = episodes.reading
    arrays |= {_TOKEN + name: array for name, array in episodes.tokens.items()}
    arrays |= {_PART + name: array for name, array in episodes.parts.items()}
    _insert_arrays(connection, step, EPISODES, 0, arrays)
    connection.executemany(
        "INSERT OR IGNORE INTO pieces VALUES (?, ?)", [(token, encode_text(piece)) for token, piece in episodes.pieces.items()]
    )


def read_pieces(connection: sqlite3.Connection) -> dict[int, str]:
    """The text of every token id that the run's responses have."""
    if not has_table(connection, "pieces"):
        return {}
    return {token: decode_text(piece) for token, piece in connection.execute("SELECT token, piece FROM pieces")}


def read_episodes(connection: sqlite3.Connection, first: int, last: int) -> dict[int, StepEpisodes]:
    """By step, those of the steps ``first`` to ``last``; ``pieces`` is the same mapping in each."""
    if not has_table(connection, "step_arrays"):
        return {}
    pieces = read_pieces(connection)
    rows = connection.execute(
        f"SELECT {_ARRAY_COLUMNS} FROM step_arrays WHERE owner = ? AND step BETWEEN ? AND ? ORDER BY step", (EPISODES, first, last)
    )
    return {step: _episodes(arrays, pieces) for (step, _), arrays in _read_arrays(rows).items()}


def read_episode_arrays(connection: sqlite3.Connection, step: int, names: Sequence[str], condition: str) -> dict[str, np.ndarray]:
    """Some arrays of one step, by the names of :class:`StepEpisodes`; ``condition`` says which steps there are, in SQL."""
    if not has_table(connection, "step_arrays"):
        return {}
    marks = ", ".join("?" * len(names))
    rows = connection.execute(
        f"SELECT {_ARRAY_COLUMNS} FROM step_arrays WHERE step = ? AND owner = ? AND sample = 0 AND name IN ({marks}) AND {condition}",
        (step, EPISODES, *names),
    )
    return _read_arrays(rows).get((step, 0), {})


def _episodes(arrays: dict[str, np.ndarray], pieces: dict[int, str]) -> StepEpisodes:
    def under(prefix: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

    whole = {name: arrays[name] for name in ("lengths", "response_ids", "scores")}
    stopped = arrays["stopped"].astype(bool)
    gold, reading = arrays.get("gold"), arrays.get("reading")
    return StepEpisodes(**whole, gold=gold, reading=reading, tokens=under(_TOKEN), parts=under(_PART), stopped=stopped, pieces=pieces)


# --- answers to the watched prompts ----------------------------------------------------------------------------------------------


def insert_watched(connection: sqlite3.Connection, step: int, records: Sequence[WatchRecord]) -> None:
    """Store answers to the watched prompts; an earlier answer of the same step and sample is replaced."""
    for record in records:
        numbers, flags = encode_numbers({"score": record.score, "gold": record.gold, "kl": record.kl})
        score, gold, kl = numbers
        stopped = None if record.stopped is None else int(record.stopped)
        pieces = encode_pieces(record.pieces) if record.pieces else None
        connection.execute(
            """INSERT OR REPLACE INTO watched (step, sample, prompt, response, score, gold, kl, flags, stopped, pieces)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (step, record.sample, encode_text(record.prompt), encode_text(record.response), score, gold, kl, flags, stopped, pieces),
        )
        connection.execute("DELETE FROM step_arrays WHERE step = ? AND owner = ? AND sample = ?", (step, WATCHED, record.sample))
        _insert_arrays(connection, step, WATCHED, record.sample, record.arrays)


def read_watched(connection: sqlite3.Connection, condition: str) -> list[tuple[int, WatchRecord]]:
    """(step, answer) by step and sample; ``condition`` says which steps, in SQL."""
    new = has_table(connection, "step_arrays")
    columns = "step, sample, prompt, response, score, gold, flags" + (", kl, stopped, pieces" if new else ", NULL, NULL, NULL")
    rows = connection.execute(f"SELECT {columns} FROM watched WHERE {condition} ORDER BY step, sample").fetchall()
    stored = f"SELECT {_ARRAY_COLUMNS} FROM step_arrays WHERE owner = ? AND {condition}"
    arrays = _read_arrays(connection.execute(stored, (WATCHED,))) if new else {}
    return [_watched(row, arrays) for row in rows]


def _watched(row: Sequence[Any], arrays: dict[tuple[int, int], dict[str, np.ndarray]]) -> tuple[int, WatchRecord]:
    step, sample, prompt, response, score, gold, flags, kl, stopped, pieces = row
    return step, WatchRecord(
        sample=sample,
        prompt=decode_text(prompt),
        response=decode_text(response),
        stopped=None if stopped is None else bool(stopped),
        pieces=decode_pieces(pieces) if pieces is not None else [],
        arrays=arrays.get((step, sample), {}),
        **decode_numbers({"score": score, "gold": gold, "kl": kl}, flags),
    )


# --- probes ------------------------------------------------------------------------------------------------------------------------


def insert_probes(connection: sqlite3.Connection, probes: Sequence[Probe]) -> None:
    """Store the run's probes, instead of earlier ones."""
    connection.execute("DELETE FROM probes")
    connection.executemany(
        "INSERT INTO probes VALUES (?, ?, ?)",
        [(probe.probe, encode_text(probe.prompt), encode_pieces(probe.pieces)) for probe in probes],
    )


def insert_probe_scores(connection: sqlite3.Connection, step: int, scores: Sequence[ProbeScore]) -> None:
    """Store what a step's policy gives to the probes."""
    for score in scores:
        _insert_arrays(connection, step, PROBE, score.probe, {name: getattr(score, name) for name in _PROBE_ARRAYS})


def read_probes(connection: sqlite3.Connection) -> list[Probe]:
    """The run's probes, in order; none in runs that an earlier version recorded."""
    if not has_table(connection, "probes"):
        return []
    rows = connection.execute("SELECT probe, prompt, pieces FROM probes ORDER BY probe")
    return [Probe(probe, decode_text(prompt), decode_pieces(pieces)) for probe, prompt, pieces in rows]


def read_probe_scores(connection: sqlite3.Connection, condition: str) -> list[tuple[int, ProbeScore]]:
    """(step, score) by step and probe; ``condition`` says which steps, in SQL."""
    if not has_table(connection, "probes"):
        return []
    rows = connection.execute(f"SELECT {_ARRAY_COLUMNS} FROM step_arrays WHERE owner = ? AND {condition} ORDER BY step, sample", (PROBE,))
    found = _read_arrays(rows)
    return [(step, ProbeScore(probe, **{name: arrays[name] for name in _PROBE_ARRAYS})) for (step, probe), arrays in found.items()]


# --- settings changed while the run went on ------------------------------------------------------------------------------------------


def insert_changes(connection: sqlite3.Connection, at: float, changes: Sequence[SettingChange]) -> None:
    """Store changes; ``at`` is in seconds since 1970."""
    connection.executemany(
        "INSERT INTO changes VALUES (?, ?, ?, ?, ?)",
        [
            (change.step, at, encode_text(change.setting), *(encode_json(value)[0] for value in (change.old, change.new)))
            for change in changes
        ],
    )


def read_changes(connection: sqlite3.Connection, condition: str) -> list[SettingChange]:
    """In the order in which they were made; ``condition`` says which steps, in SQL."""
    if not has_table(connection, "changes"):
        return []
    rows = connection.execute(f"SELECT step, setting, old, new FROM changes WHERE {condition} ORDER BY rowid")
    return [SettingChange(step, decode_text(setting), decode_json(old, None), decode_json(new, None)) for step, setting, old, new in rows]


# --- what a step holds while it waits between two of its phases --------------------------------------------------------------------

_SCRATCH_TABLES = {"prompt_ids": "int32", "response_ids": "int32", "top_ids": "int32", "ref_top_ids": "int32"}
_SCRATCH_TABLES |= {"top_logprobs": "float32", "ref_top_logprobs": "float32"}
_LENGTH_BYTES = 8  # of the number before the header


def insert_scratch(connection: sqlite3.Connection, scratch: Scratch) -> None:
    """Store what a step holds, instead of what it held before."""
    connection.execute("DELETE FROM scratch")
    connection.executemany(
        "INSERT INTO scratch VALUES (?, ?, ?, ?)",
        [(record.sample, scratch.step, scratch.phase, _scratch_blob(record)) for record in scratch.rollouts],
    )


def _scratch_blob(record: RolloutRecord) -> bytes:
    """One episode: the length of a header in JSON, the header, and the arrays that it names, one after the other."""
    tokens = record.tokens
    if tokens is None:
        raise ValueError("an episode is kept with its tokens")
    arrays = [(name, encode_array(getattr(tokens, name), kind)) for name, kind in _SCRATCH_TABLES.items()]
    arrays += [(_TOKEN + name, encode_array(array, "float32")) for name, array in tokens.arrays.items()]
    texts = {"prompt_pieces": tokens.prompt_pieces, "response_pieces": tokens.response_pieces, "top_pieces": tokens.top_pieces}
    settings = {"gamma": tokens.gamma, "lam": tokens.lam, "kl_coef": tokens.kl_coef}
    episode = {field.name: getattr(record, field.name) for field in fields(record) if field.name != "tokens"}
    places = [[name, kind, shape, len(data)] for name, (kind, shape, data) in arrays]
    header, flags = encode_json({"episode": episode, "texts": texts, "settings": settings, "arrays": places})
    both = [decode_text(header), None if flags is None else decode_text(flags)]
    whole = json.dumps(both, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return len(whole).to_bytes(_LENGTH_BYTES, "little") + whole + b"".join(data for _, (_, _, data) in arrays)


def read_scratch(connection: sqlite3.Connection) -> Scratch | None:
    """What a step holds that waits between two of its phases; None when none does."""
    if not has_table(connection, "scratch"):
        return None
    rows = connection.execute("SELECT step, phase, data FROM scratch ORDER BY sample").fetchall()
    if not rows:
        return None
    return Scratch(rows[0][0], rows[0][1], [_scratch_record(data) for _, _, data in rows])


def _scratch_record(blob: bytes) -> RolloutRecord:
    end = _LENGTH_BYTES + int.from_bytes(blob[:_LENGTH_BYTES], "little")
    header = decode_json(*json.loads(decode_text(blob[_LENGTH_BYTES:end])))
    arrays: dict[str, np.ndarray] = {}
    for name, kind, shape, size in header["arrays"]:
        arrays[name] = decode_array(kind, shape, blob[end : end + size])
        end += size
    texts = header["texts"]
    texts["top_pieces"] = {int(token): piece for token, piece in texts["top_pieces"].items()}
    quantities = {name.removeprefix(_TOKEN): array for name, array in arrays.items() if name.startswith(_TOKEN)}
    tables: dict[str, Any] = {name: arrays[name] for name in _SCRATCH_TABLES}
    return RolloutRecord(tokens=TokenRecord(arrays=quantities, **tables, **texts, **header["settings"]), **header["episode"])
