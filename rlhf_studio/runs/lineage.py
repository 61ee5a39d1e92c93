"""Where runs come from: what each was made from, with the hashes of that moment, and what became of it since."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlhf_studio.config import Component, StageConfig, names_in
from rlhf_studio.language import S_
from rlhf_studio.runs import paths
from rlhf_studio.runs.evaluation.policies import ALL, run_named
from rlhf_studio.runs.manifest import entries_by_step, is_folder, mark_used
from rlhf_studio.runs.reader import RunReader

EVENT = "ingredients"
"""The kind of the event that a run records what it is made from with."""

Standing = Literal["as it was", "changed", "gone", "not checked"]


@dataclass(frozen=True)
class Source:
    """One thing that a run was made from.

    Attributes:
        setting, name: the setting that named it, and how.
        kind: ``model``, ``data`` or ``code``.
        path, sha256: where it was, and the hash of what it held; empty where it was not on this machine.
        run, step: the run that trained the model, and the step; empty and None for any other.
        standing: whether it still is what it was. What was not on this machine is not checked.
    """

    setting: str
    name: str
    kind: str
    path: str
    sha256: str
    run: str
    step: int | None
    standing: Standing

    @property
    def sentence(self) -> str:
        """What a person should know, empty when it is as it was."""
        if self.standing == "gone":
            return S_(f"{self.name} is no longer there ({self.setting}).")
        if self.standing == "changed":
            return S_(f"{self.name} has changed since the run began ({self.setting}): the run learned from something else.")
        return ""


def sources(reader: RunReader, hash_of: Callable[[Path], str], bundled: Callable[[str], Path | None]) -> list[Source]:
    """What a run was made from, compared with what lies there now. Empty for runs of earlier versions. Raises StoreError.

    ``hash_of`` is :func:`rlhf_studio.inputs.provenance.hash_of`, or a version of it that remembers its answers. ``bundled`` is
    :func:`rlhf_studio.config.bundled.bundled_path`: the program may have moved since the run began.
    """
    events = [event for event in reader.newest_events(100_000) if event.kind == EVENT]
    if not events:
        return []
    return [_source(recorded, hash_of, bundled) for recorded in events[-1].data.get("ingredients", []) if isinstance(recorded, Mapping)]


def _source(recorded: Mapping[str, Any], hash_of: Callable[[Path], str], bundled: Callable[[str], Path | None]) -> Source:
    texts = {name: str(recorded.get(name) or "") for name in ("setting", "name", "kind", "path", "sha256", "run")}
    step = recorded.get("step")
    if (bundled_file := bundled(texts["name"]) or bundled(texts["path"])) is not None:
        texts["path"] = str(bundled_file)
    return Source(**texts, step=step if type(step) is int else None, standing=standing_of(texts["path"], texts["sha256"], hash_of))


def standing_of(path: str, sha256: str, hash_of: Callable[[Path], str]) -> Standing:
    """Whether the file or folder at a path still has the hash that was noted. Without a path or a hash, it is not checked."""
    if not path or not sha256:
        return "not checked"
    try:
        return "as it was" if hash_of(Path(path)) == sha256 else "changed"
    except OSError:
        return "gone"


def family(run_id: str, made_from: Mapping[str, Sequence[str]]) -> list[str]:
    """The runs that a run was made from, directly or through others, oldest first. ``made_from``: for each run id, the ids of its
    sources.
    """
    ancestors: list[str] = []

    def visit(run: str) -> None:
        for parent in made_from.get(run, ()):
            if parent and parent != run_id and parent not in ancestors:
                visit(parent)
                if parent not in ancestors:
                    ancestors.append(parent)

    visit(run_id)
    return ancestors


# --- what other runs must keep -------------------------------------------------------------------------------------------------


def keep_sources(run_dir: Path, config: StageConfig, folder: Path) -> list[str]:
    """Mark each checkpoint of another run that these settings name: that run then keeps it as long as this run exists.

    ``folder`` is where relative names start. Returns one sentence for each checkpoint that could not be marked.
    """
    problems = []
    for checkpoint in _named_checkpoints(config, folder):
        run = checkpoint.parents[1]
        if run == run_dir.resolve():
            continue
        try:
            mark_used(checkpoint, run_dir)
        except OSError as error:
            why = error.strerror or error
            problems.append(S_(f"The run {run.name} may remove its checkpoint {checkpoint.name}, which this run is made from: {why}."))
    return problems


def _named_checkpoints(config: StageConfig, folder: Path) -> list[Path]:
    """The folders of the checkpoints that the settings name with a step.

    A run named without a step means its newest checkpoint, which that run keeps anyway.
    """
    folders = (checkpoint for name in _model_names(config) for checkpoint in _checkpoints(os.path.join(folder, name)))
    return list(dict.fromkeys(path.resolve() for path in folders if is_folder(path)))


def _model_names(config: StageConfig) -> Iterator[str]:
    for section in config.sections:
        own = getattr(config, section)
        for setting, kind in names_in(type(own)).items():
            if kind in ("model", "models", "policies"):
                yield from filter(None, map(str.strip, re.split(r"[,\n]" if kind == "models" else "\n", getattr(own, setting))))
        components: list[Component] = getattr(own, "components", [])
        for component in components:
            yield from component.model_names()


def _checkpoints(name: str) -> list[Path]:
    """What ``RUN@STEP``, ``RUN@all`` or the folder of a checkpoint or of its model stands for, where there is such a run."""
    path = Path(name)
    for candidate in (path, path.parent):
        if candidate.parent.name == paths.CHECKPOINTS and paths.checkpoint_step(candidate.name) is not None:
            return [candidate] if (candidate.parents[1] / paths.DATABASE).is_file() else []
    run, which = run_named(name, None) or (None, "")
    if run is None:
        return []
    if which == ALL:
        return entries_by_step(run / paths.CHECKPOINTS)
    return [paths.checkpoint_dir(run, int(which))] if which.isdecimal() else []
