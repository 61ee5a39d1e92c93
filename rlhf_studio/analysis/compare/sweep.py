"""A sweep as a table: what a metric comes to for each value of one setting, or each pair of values of two."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

from rlhf_studio.analysis.compare.records import Cell, SweepTable
from rlhf_studio.analysis.compare.runs import SEED, all_known, check_number, differing, is_known, plain_settings
from rlhf_studio.analysis.compare.scale import not_one_scale
from rlhf_studio.analysis.ends import first_and_last
from rlhf_studio.language import S_
from rlhf_studio.runs.reader import RunReader


def sweep_table(readers: Sequence[RunReader], metric: str) -> SweepTable:
    """How a metric ended (see :mod:`rlhf_studio.analysis.ends`), as a table and a heat map. Runs that differ only in the seed share a cell.

    The settings are those that the runs' origin names where all are of one sweep, else those in which they are known to differ. A run
    without a known value of one of them has no place.

    Raises:
        ValueError: no run, too many runs, the same run twice, runs that differ in no setting or in more than two, or a metric that may mean
            something else in each of them.
        StoreError: one of them cannot be read.
    """
    check_number(readers)
    settings = [plain_settings(reader) for reader in readers]
    axes = _axes(readers, settings)
    placed = [run for run, plain in enumerate(settings) if all(is_known(plain, axis) for axis in axes)]
    last = {run: first_and_last(readers[run], readers[run].status().stage, [metric])[metric][1] for run in placed}
    if why := not_one_scale([readers[run] for run, value in last.items() if value is not None], metric):
        raise ValueError(why)
    values = {run: [_value(settings[run], axis) for axis in axes] for run in placed}
    rows = _ordered([own[0] for own in values.values()])
    columns = _ordered([own[1] for own in values.values()]) if len(axes) == 2 else [None]
    whole = {run for run in placed if all_known(settings[run])}
    cells = [[_cell(values, last, whole, [row, column][: len(axes)]) for column in columns] for row in rows]
    return SweepTable(metric, axes, rows, columns, cells, [run for run in range(len(readers)) if run not in values])


def _axes(readers: Sequence[RunReader], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    origins = [reader.origin() for reader in readers]
    of_one = bool(origins[0].sweep) and all(origin.sweep == origins[0].sweep for origin in origins)
    names = list(dict.fromkeys(name for origin in origins for name in origin.changes)) if of_one else []
    names = names or [row.setting for row in differing(settings) if row.differs()]
    axes = [name for name in names if name != SEED] or names
    if not 1 <= len(axes) <= 2:
        none = S_("do not differ in any") if all(map(all_known, settings)) else S_("do not differ in any that is known")
        finding = S_(f"differ in {len(axes)}: {', '.join(axes)}") if axes else none
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


def _cell(values: Mapping[int, Sequence[Any]], last: Mapping[int, float | None], whole: Set[int], of_cell: Sequence[Any]) -> Cell | None:
    """``whole`` are the runs of which all settings are known."""
    runs = [run for run, own in values.items() if [_key(value) for value in own] == [_key(value) for value in of_cell]]
    if not runs:
        return None
    known = [value for run in runs if (value := last[run]) is not None]
    if not known:
        return Cell(runs, None, None, None)
    alike = len(runs) == 1 or whole >= set(runs)
    return Cell(runs, sum(known) / len(known) if alike else None, min(known), max(known))
