"""Each codec is checked against the tables that the schema makes, and what an older database lacks is read as missing."""

from __future__ import annotations

import sqlite3
from dataclasses import fields, is_dataclass
from pathlib import Path

from rlhf_studio.runs import rows, schema
from rlhf_studio.runs.codec import RecordTable

KEYS = {"run": {"id"}, "commands": {"sent_at", "early"}, "events": {"at", "step"}, "probes": set(), "changes": {"at"}}
BY_STEP = {"step", "sample"}


def test_every_codec_has_the_columns_of_its_table_and_the_fields_of_its_record() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(connection, Path("memory"))
    tables = [value for value in vars(rows).values() if isinstance(value, RecordTable)]
    assert len(tables) >= 9
    for table in tables:
        known = {row[1]: bool(row[3]) and row[4] is None and not row[5] for row in connection.execute(f"PRAGMA table_info({table.name})")}
        given = {*table.columns, *KEYS.get(table.name, BY_STEP)}
        assert set(table.columns) <= known.keys(), table.name
        assert {column for column, needed in known.items() if needed} <= given, table.name
        if is_dataclass(table.make):
            own = {name for part in table.parts for name in part.fields}
            assert own <= {field.name for field in fields(table.make)}, table.name
    connection.close()
