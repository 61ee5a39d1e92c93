"""A sweep as a table: what a metric comes to for each value of one setting, or each pair of values of two."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_studio.analysis.compare.records import Cell, SweepTable
from rlhf_studio.analysis.compare.runs import SEED, check_number, differing, plain_settings
from rlhf_studio.analysis.ends import first_and_last
from rlhf_studio.runs.reader import RunReader


def sweep_table(readers: Sequence[RunReader], metric: str) -> SweepTable:
    """How a metric ended (see :mod:`rlhf_studio.analysis.ends`), as a table and a heat map. Runs that differ only in the seed share a cell.

    The settings are those that the runs' origin names where all are of one sweep, else those in which they differ.

    Raises:
        ValueError: no run, too many runs, the same run twice, or runs that differ in no setting or in more than two.
        StoreError: one of them cannot be read.
    """
    check_number(readers)
    settings = [plain_settings(reader) for reader in readers]
    axes = _axes(readers, settings)
    values = [[_value(plain, axis) for axis in axes] for plain in settings]
    rows = _ordered([own[0] for own in values])
    columns = _ordered([own[1] for own in values]) if len(axes) == 2 else [None]
    last = [first_and_last(reader, reader.status().stage, [metric])[metric][1] for reader in readers]
    cells = [[_cell(values, last, [row, column][: len(axes)]) for column in columns] for row in rows]
    return SweepTable(metric, axes, rows, columns, cells)


def _axes(readers: Sequence[RunReader], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    origins = [reader.origin() for reader in readers]
    of_one = bool(origins[0].sweep) and all(origin.sweep == origins[0].sweep for origin in origins)
    names = list(dict.fromkeys(name for origin in origins for name in origin.changes)) if of_one else []
    names = names or [row.setting for row in differing(settings)]
    axes = [name for name in names if name != SEED] or names
    if not 1 <= len(axes) <= 2:
        finding = f"differ in {len(axes)}: {', '.join(axes)}" if axes else "do not differ in any"
        raise ValueError(f"A table of a sweep needs runs that differ in one or two settings; these {finding}.")
    return axes


def _value(settings: Mapping[str, Any], name: str) -> Any:
    value: Any = settings
    for part in name.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _ordered(values: Sequence[Any]) -> list[Any]:
    different = list({_key(value): value for value in values}.values())
    plain = all(isinstance(value, int | float) for value in different)
    return sorted(different) if plain else different


def _cell(values: Sequence[Sequence[Any]], last: Sequence[float | None], of_cell: Sequence[Any]) -> Cell | None:
    runs = [run for run, own in enumerate(values) if [_key(value) for value in own] == [_key(value) for value in of_cell]]
    if not runs:
        return None
    known = [value for run in runs if (value := last[run]) is not None]
    return Cell(runs, sum(known) / len(known), min(known), max(known)) if known else Cell(runs, None, None, None)
