"""What each part of a road was made from, checked by its hashes against what lies there now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rlhf_studio.road.state import Part, Road
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lineage import sources
from rlhf_studio.runs.workspace import Workspace

Json = dict[str, Any]


def lineage_of(road: Road, workspace: Workspace, hash_of: Callable[[Path], str]) -> Json:
    """``rows``, one for each part that has something to tell, and ``again``: whether another look may find more."""
    titles = {part.run: part.title for part in road.parts if part.run}
    rows: list[Json] = []
    again = False
    for part in road.parts:
        told = _run(part, titles, workspace, hash_of) if part.run else None
        again = again or bool(told and told["problem"]) or (part.state == "running" and not (told and told["sources"]))
        if told:
            rows.append(told)
    return {"rows": rows, "again": again}


def _run(part: Part, titles: dict[str, str], workspace: Workspace, hash_of: Callable[[Path], str]) -> Json | None:
    """The row of a run; None while its folder is not made: the road notes the run's id first."""
    row: Json = {"title": part.title, "run": part.run, "sources": [], "problem": ""}
    try:
        found = sources(workspace.reader(part.run), hash_of)
    except StoreError as error:
        to_be_made = error.reason == "missing" and part.state != "done"
        return None if to_be_made else {**row, "problem": str(error)}
    named = [replace(one, path="", name=titles.get(one.run) or short(one.name)) for one in found]
    return {**row, "sources": [{**asdict(one), "sentence": one.sentence} for one in named]}


def short(name: str) -> str:
    """A path's last two parts: people know their folders, and others need not."""
    return "/".join(name.rstrip("/").split("/")[-2:])
