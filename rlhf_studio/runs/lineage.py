"""Where runs come from: what each was made from, with the hashes of that moment, and what became of it since."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

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
            return f"{self.name} is no longer there ({self.setting})."
        if self.standing == "changed":
            return f"{self.name} has changed since the run began ({self.setting}): the run learned from something else."
        return ""


def sources(reader: RunReader, hash_of: Callable[[Path], str]) -> list[Source]:
    """What a run was made from, checked against what lies there now; empty for runs of earlier versions. Raises StoreError.

    ``hash_of`` is :func:`rlhf_studio.inputs.provenance.hash_of`, or a remembering one.
    """
    events = [event for event in reader.newest_events(100_000) if event.kind == EVENT]
    if not events:
        return []
    return [_source(one, hash_of) for one in events[-1].data.get("ingredients", []) if isinstance(one, Mapping)]


def _source(recorded: Mapping[str, Any], hash_of: Callable[[Path], str]) -> Source:
    texts = {name: str(recorded.get(name) or "") for name in ("setting", "name", "kind", "path", "sha256", "run")}
    step = recorded.get("step")
    return Source(**texts, step=step if type(step) is int else None, standing=standing_of(texts["path"], texts["sha256"], hash_of))


def standing_of(path: str, sha256: str, hash_of: Callable[[Path], str]) -> Standing:
    """Whether what lies at a path still has the hash that was noted; not checked where neither or one of them is empty."""
    if not path or not sha256:
        return "not checked"
    try:
        return "as it was" if hash_of(Path(path)) == sha256 else "changed"
    except OSError:
        return "gone"


def family(run_id: str, made_from: Mapping[str, Sequence[str]]) -> list[str]:
    """The runs that a run comes from, directly or through others, oldest first. ``made_from``: run id -> ids of what it was made from."""
    found: list[str] = []

    def visit(run: str) -> None:
        for parent in made_from.get(run, ()):
            if parent and parent != run_id and parent not in found:
                visit(parent)
                if parent not in found:
                    found.append(parent)

    visit(run_id)
    return found
