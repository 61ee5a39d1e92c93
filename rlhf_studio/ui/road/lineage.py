"""What each part of a road was made from. Hashes show whether the files are still the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rlhf_studio.config.bundled import bundled_path
from rlhf_studio.inputs.trained import run_of_model
from rlhf_studio.jobs.road.plan import policy_for_pairs
from rlhf_studio.jobs.road.state import Part, Road
from rlhf_studio.language import _, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.lineage import Source, sources, standing_of
from rlhf_studio.runs.workspace import Workspace

Json = dict[str, Any]


def lineage_of(road: Road, workspace: Workspace, hash_of: Callable[[Path], str]) -> Json:
    """``rows``, one for each part with sources, and ``again``: whether the page should ask again because hashes are still computed."""
    titles = {part.run: part.title for part in road.parts if part.run}
    rows: list[Json] = []
    again = False
    for part in road.parts:
        row = _run(part, titles, workspace, hash_of) if part.run else _data(road, part, hash_of) if part.file else None
        growing = part.kind == "run" and part.state == "running" and not (row and row["sources"])
        again = again or growing or bool(row and row["problem"])
        if row:
            rows.append(row)
    return {"rows": rows, "again": again}


def _run(part: Part, titles: dict[str, str], workspace: Workspace, hash_of: Callable[[Path], str]) -> Json | None:
    """The row of a run; None while its folder is not made: the road notes the run's id first."""
    row: Json = {"title": part.title, "run": part.run, "sources": [], "problem": ""}
    try:
        recorded = sources(workspace.reader(part.run), hash_of, bundled_path)
    except StoreError as error:
        to_be_made = error.reason == "missing" and part.state != "done"
        return None if to_be_made else {**row, "problem": told(error)}
    named = [replace(source, path="", name=titles.get(source.run) or _short(source.name)) for source in recorded]
    return {**row, "sources": [{**asdict(source), "sentence": source.sentence} for source in named]}


def _data(road: Road, part: Part, hash_of: Callable[[Path], str]) -> Json:
    """The row of a file that a part wrote: the policy that wrote the responses in it, and the file itself."""
    origin = run_of_model(Path(part.policy)) if part.policy else None
    step = origin[1] if origin else None
    run = policy_for_pairs(road, part.key, Path()).name
    policy = next((other.title for other in road.parts if run and other.run == run), run)
    as_policy, as_file = (part.policy, part.policy_sha256), (part.file, part.sha256)
    made_from = [
        Source("policy", policy, "model", *as_policy, run, step, standing_of(*as_policy, hash_of)),
        Source("file", _short(part.file), "data", *as_file, "", None, standing_of(*as_file, hash_of)),
    ]
    since = {"policy": _("it wrote these responses"), "file": _("it was written")}
    sentences = {"changed": _("{} has changed since {}."), "gone": _("{} is no longer there.")}
    rows = [
        {**asdict(source), "path": "", "sentence": sentences.get(source.standing, "").format(source.name, since[source.setting])}
        for source in made_from
    ]
    return {"title": _(part.title), "run": "", "sources": rows, "problem": ""}


def _short(name: str) -> str:
    """A path's last two parts: people know their folders, and others need not."""
    return "/".join(name.rstrip("/").split("/")[-2:])
