"""The state of a road: ``road.json`` in its folder. The one process that drives the road writes it; the app and people read it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from rlhf_studio.regular import read_regular
from rlhf_studio.runs.create import write_durably
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.liveness import FileLock, is_locked

ROADS = "roads"
FILE = "road.json"
LOCK = "road.lock"
COMMAND_LOCK = "command.lock"
LOG = "road.log"
RETRY_SECONDS = 0.5

PartState = Literal["waiting", "running", "done", "failed", "stopped", "skipped"]
OVER: tuple[PartState, ...] = ("done", "skipped")
Kind = Literal["run", "data"]

_AS_WRITTEN = ConfigDict(extra="forbid", strict=True)
"""How a record of ``road.json`` is checked: another version may have written the file, or a person."""


@dataclass(frozen=True)
class RoadSettings:
    """How long the parts of a road are.

    Attributes:
        reviews: demonstrations that the policy is fine-tuned on.
        pairs: pairs of responses that the judge compares, in each round.
        ppo_steps: steps of PPO in each round.
        prompts: held-out prompts of the evaluation.
        rounds: how often pairs are sampled, the reward model is trained and PPO goes on.
        seed: of everything.
    """

    reviews: int = 110_000
    pairs: int = 8_000
    ppo_steps: int = 30
    prompts: int = 128
    rounds: int = 1
    seed: int = 0
    __pydantic_config__ = _AS_WRITTEN


@dataclass(frozen=True)
class OwnSettings:
    """What a person has brought, and how far the road may go with it. Paths are full paths.

    Attributes:
        policy: the model that learns: a folder, a hub id, or a run.
        demonstrations, pairs, prompts: files or datasets; empty for what there is none of.
        reward: settings of a reward component that PPO learns from in place of a reward model trained on the pairs; empty for none.
        judge: settings of a reward component that compares the end with the start; empty for none.
        minutes: for the whole road, divided over its parts; 0 for as long as it takes.
        anyway: whether a part begins although the one before it was not worth it.
        changes: settings that the person has chosen, by dotted name, as typed; each counts in every part that has it.
        seed: of everything.
    """

    policy: str
    demonstrations: str = ""
    pairs: str = ""
    prompts: str = ""
    reward: dict[str, Any] = field(default_factory=dict)
    judge: dict[str, Any] = field(default_factory=dict)
    minutes: float = 0.0
    anyway: bool = False
    changes: dict[str, str] = field(default_factory=dict)
    seed: int = 0
    __pydantic_config__ = _AS_WRITTEN


@dataclass(frozen=True)
class TrainingEnds:
    """How the most important number of a training run began and ended.

    Attributes:
        metric: its name in :mod:`rlhf_studio.config.metrics`.
        first, last: as :func:`rlhf_studio.analysis.ends.first_and_last` takes them; ``first`` is None where it is not known.
        held_out: how many examples a held-out number was measured on; 0 where that is not known or does not matter.
        kind: the doctor's verdict on the run, such as ``collapsed`` (:data:`rlhf_studio.analysis.records.VerdictKind`); empty for none.
        steps: how many were done.
        rate: the learning rate that the run was started with; 0 where that is not known.
        usual: the usual rate for the model; 0 where that is not known.
    """

    metric: str
    first: float | None
    last: float
    held_out: int = 0
    kind: str = ""
    steps: int = 0
    rate: float = 0.0
    usual: float = 0.0
    __pydantic_config__ = _AS_WRITTEN


@dataclass(frozen=True)
class Comparison:
    """How the last policy of an evaluation compares with the first.

    Attributes:
        measure: what decides: ``gold``, ``judge`` or ``score``.
        rate: in how many comparisons the last policy wins, 0 to 1; a draw counts half.
        low, high: ends of its 95 % interval; None where there are too few prompts for one.
        prompts: that both have answered.
        gain: mean of the paired differences, last less first, in the measure's own unit; ``gain_low`` and ``gain_high`` as above.
        same_origin: whether what decides is what PPO learned from; None where nobody has looked.
        judge: what decides, in a few words; empty where nobody has looked.
        same_answer: to how many prompts the last policy gives its most frequent answer.
    """

    measure: str
    rate: float
    low: float | None
    high: float | None
    prompts: int
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    same_origin: bool | None = None
    judge: str = ""
    same_answer: int = 0
    __pydantic_config__ = _AS_WRITTEN


class AlreadyDriven(StoreError):
    """Another process drives this road; the message is one sentence for people."""


@dataclass(frozen=True)
class Part:
    """One part of a road.

    Attributes:
        key: ``sft``, ``pairs``, ``reward_model``, ``ppo`` or ``evaluation``, with the number of the round behind it from the second on.
        title: for people.
        kind: ``run`` is a run of the workspace, ``data`` a file that is written.
        state: whether it waits, runs, is done, failed, was stopped, or is left out.
        run: the id of its run; empty before it is made, and for data.
        file, sha256: the file that it wrote, and the hash of the content at that time; empty for a run.
        policy, policy_sha256: folder of the model that wrote the responses in that file, and its hash at that time; empty for a run.
        headline: its most important number in words; empty before it is known. Of a part that is left out: why.
        course, comparison: the numbers behind the headline, of a training run and of an evaluation; None before they are known.
        fitted: the settings that followed from model and data, a sentence each.
        problem: why it failed, one sentence.
        seconds: how long it took.
    """

    key: str
    title: str
    kind: Kind
    state: PartState = "waiting"
    run: str = ""
    file: str = ""
    sha256: str = ""
    policy: str = ""
    policy_sha256: str = ""
    headline: str = ""
    course: TrainingEnds | None = None
    comparison: Comparison | None = None
    fitted: list[str] = field(default_factory=list)
    problem: str = ""
    seconds: float = 0.0
    __pydantic_config__ = _AS_WRITTEN


@dataclass(frozen=True)
class Road:
    """A road in its folder.

    Attributes:
        name: for people.
        settings: what it was started with; :class:`OwnSettings` for a road on a person's own files.
        parts: in their order.
        created_at: seconds since 1970.
    """

    folder: Path
    name: str
    settings: RoadSettings | OwnSettings
    parts: list[Part] = field(default_factory=list)
    created_at: float = 0.0

    @property
    def id(self) -> str:
        """The name of its folder."""
        return self.folder.name

    def part(self, key: str) -> Part:
        """The part of this key."""
        return next(part for part in self.parts if part.key == key)

    def next_part(self) -> Part | None:
        """The first part that is neither done nor left out; None at the end."""
        return next((part for part in self.parts if part.state not in OVER), None)

    def last_done(self) -> Part | None:
        """The newest part that is done; None before the first is."""
        return next((part for part in reversed(self.parts) if part.state == "done"), None)

    def with_part(self, key: str, **changes: Any) -> Road:
        """The road with another state of one part."""
        return replace(self, parts=[replace(part, **changes) if part.key == key else part for part in self.parts])


@dataclass(frozen=True)
class _RoadFile:
    """What ``road.json`` holds."""

    name: str
    settings: RoadSettings | OwnSettings
    created_at: float
    parts: list[Part]


_ROAD_FILE = TypeAdapter(_RoadFile)


def key_of(stage: str, number: int) -> str:
    """The key of a stage's part in a round; rounds count from 1."""
    return stage if number == 1 else f"{stage}-{number}"


def workspace_of(folder: Path) -> Path | None:
    """The workspace that a road's folder is in; None if it is in none."""
    return folder.parent.parent if folder.parent.name == ROADS else None


def new_road_folder(workspace: Path) -> Path:
    """An empty folder for a new road. Raises OSError."""
    name = time.strftime("road-%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)
    folder = workspace / ROADS / name
    folder.mkdir(parents=True)
    return folder


def write_road(road: Road) -> None:
    """Replace ``road.json`` in one step. Raises OSError."""
    data = _RoadFile(road.name, road.settings, road.created_at, road.parts)
    temporary = road.folder / f".{FILE}.{secrets.token_hex(4)}"
    write_durably(temporary, _ROAD_FILE.dump_json(data, indent=1))
    os.replace(temporary, road.folder / FILE)


def read_road(folder: Path) -> Road:
    """The road in a folder. A part that was running when its process ended gets the state "stopped".

    Raises OSError, StoreError, and ValueError for a file that does not describe a road.
    """
    text = read_regular(folder / FILE)
    try:
        road = Road(folder, **vars(_ROAD_FILE.validate_json(text, strict=True)))
    except ValidationError as error:
        first = error.errors()[0]
        setting = ".".join(map(str, first["loc"]))[:60]
        raise ValueError(f"{folder / FILE} is no road: {setting}{': ' if setting else ''}{first['msg']}") from error
    keys = _keys_of(road.settings, len(road.parts))
    if [(part.key, part.kind) for part in road.parts] != [(key, "data" if key.startswith("pairs") else "run") for key in keys]:
        raise ValueError(f"{folder / FILE} is no road: its parts do not fit its settings, which ask for {', '.join(keys)[:200]}")
    if not is_driven(folder):
        road = replace(road, parts=[replace(part, state="stopped") if part.state == "running" else part for part in road.parts])
    return road


def _keys_of(settings: RoadSettings | OwnSettings, most: int) -> list[str]:
    """The keys of the parts that the settings ask for, in their order; of at most so many rounds, whatever number a file has."""
    if isinstance(settings, OwnSettings):
        return ["sft", "reward_model", "ppo", "evaluation"]
    rounds = range(1, min(settings.rounds, most) + 1)
    return ["sft", *(key_of(stage, number) for number in rounds for stage in ("pairs", "reward_model", "ppo")), "evaluation"]


def list_roads(workspace: Path) -> list[Road]:
    """The roads of a workspace, newest first; folders that hold none are left out."""
    roads = []
    for folder in sorted((workspace / ROADS).glob("road-*"), reverse=True):
        try:
            roads.append(read_road(folder))
        except (OSError, ValueError, StoreError):  # being made just now, or somebody else's folder
            continue
    return roads


@contextmanager
def driven(folder: Path) -> Iterator[None]:
    """Inside, this process is the one that drives the road. Raises :class:`AlreadyDriven` and StoreError."""
    refusal = AlreadyDriven(f"another process goes along the road {folder} already; wait for its end, or stop it first")
    with closing(FileLock(folder / LOCK, refusal, RETRY_SECONDS)) as lock:  # is_driven holds the lock for an instant
        lock.take()
        lock.path.write_text(str(os.getpid()), encoding="ascii")
        yield


def driver_pid(folder: Path) -> int | None:
    """The id of the process that drives the road; None without one."""
    if not is_driven(folder):
        return None
    text = read_regular(folder / LOCK).decode("ascii", "replace").strip()
    return int(text) if text.isdecimal() else None


def is_driven(folder: Path) -> bool:
    """Whether a living process drives the road: it holds the lock."""
    return is_locked(folder / LOCK)
