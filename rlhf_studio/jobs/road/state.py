"""Where a road stands: ``road.json`` in its folder, written by the one process that goes along it, read by the app and by people."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from rlhf_studio.config.wording import shortened
from rlhf_studio.regular import read_regular

ROADS = "roads"
FILE = "road.json"
LOCK = "road.lock"
COMMAND_LOCK = "command.lock"
LOG = "road.log"
RETRY_SECONDS = 0.5

PartState = Literal["waiting", "running", "done", "failed", "stopped"]
Kind = Literal["run", "data"]


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


class AlreadyDriven(Exception):
    """Another process goes along this road; the message is one sentence for people."""


@dataclass(frozen=True)
class Part:
    """One part of a road.

    Attributes:
        key: ``sft``, ``pairs``, ``reward_model``, ``ppo`` or ``evaluation``, with the number of the round behind it from the second on.
        title: for people.
        kind: ``run`` is a run of the workspace, ``data`` a file that is written.
        state: where it stands.
        run: the id of its run; empty before it is made, and for data.
        file, sha256: the file that it wrote, and the hash of what it then held; empty for a run.
        policy, policy_sha256: folder of the model that wrote the responses in that file, and its hash then; empty for a run.
        headline: its most telling number in words; empty before it is known.
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
    problem: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Road:
    """A road in its folder.

    Attributes:
        name: for people.
        settings: what it was started with.
        parts: in their order.
        created_at: seconds since 1970.
    """

    folder: Path
    name: str
    settings: RoadSettings
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
        """The first part that is not done; None at the end."""
        return next((part for part in self.parts if part.state != "done"), None)

    def with_part(self, key: str, **changes: Any) -> Road:
        """The road with another state of one part."""
        return replace(self, parts=[replace(part, **changes) if part.key == key else part for part in self.parts])


def workspace_of(folder: Path) -> Path | None:
    """The workspace that a road's folder lies in; None where it lies elsewhere."""
    return folder.parent.parent if folder.parent.name == ROADS else None


def new_road_folder(workspace: Path) -> Path:
    """An empty folder for a new road. Raises OSError."""
    name = time.strftime("road-%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)
    folder = workspace / ROADS / name
    folder.mkdir(parents=True)
    return folder


def write_road(road: Road) -> None:
    """Replace ``road.json`` in one step. Raises OSError."""
    data = {
        "name": road.name,
        "settings": asdict(road.settings),
        "created_at": road.created_at,
        "parts": [asdict(part) for part in road.parts],
    }
    temporary = road.folder / f".{FILE}.{secrets.token_hex(4)}"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(data, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, road.folder / FILE)


def read_road(folder: Path) -> Road:
    """The road in a folder, with a part that was under way when its process ended shown as stopped.

    Raises OSError, and ValueError for a file that is none.
    """
    try:
        data = json.loads(read_regular(folder / FILE))
        parts = [Part(**part) for part in data["parts"]]
        road = Road(folder, data["name"], RoadSettings(**data["settings"]), parts, float(data["created_at"]))
        _check_kinds(road.settings, int)
        if strange := next((part.state for part in parts if part.state not in get_args(PartState)), None):
            raise ValueError(f"a part is {shortened(strange)}")
        for part in parts:
            _check_kinds(replace(part, seconds=""), str)  # type: ignore[arg-type]  # the one number is looked at below
        _check_text(road.name)
        json.dumps([float(part.seconds) for part in parts])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{folder / FILE} is no road: {shortened(error)}") from error
    if not is_driven(folder):
        parts = [replace(part, state="stopped") if part.state == "running" else part for part in road.parts]
        road = replace(road, parts=parts)
    return road


def _check_kinds(record: RoadSettings | Part, kind: type) -> None:
    """Raise TypeError for an attribute of another kind: the file may come from another version, or from somebody's hand."""
    for name, value in vars(record).items():
        if type(value) is not kind:
            raise TypeError(f"{name} should be {kind.__name__}, not {type(value).__name__}")
        if kind is str:
            _check_text(value)


def _check_text(value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"a text is needed, not {type(value).__name__}")
    value.encode("utf-8")  # a lone surrogate could be shown nowhere


def list_roads(workspace: Path) -> list[Road]:
    """The roads of a workspace, newest first; folders that hold none are left out."""
    found = []
    for folder in sorted((workspace / ROADS).glob("road-*"), reverse=True):
        try:
            found.append(read_road(folder))
        except (OSError, ValueError):  # being made just now, or somebody else's folder
            continue
    return found


@contextmanager
def driven(folder: Path) -> Iterator[None]:
    """Inside, this process is the one that goes along the road. Raises :class:`AlreadyDriven`, and OSError."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + RETRY_SECONDS
        while not locked(descriptor, fcntl.LOCK_EX):  # somebody who only looks holds it for an instant
            if time.monotonic() >= deadline:
                raise AlreadyDriven(f"another process goes along the road {folder} already; wait for its end, or stop it first")
            time.sleep(0.02)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def driver_pid(folder: Path) -> int | None:
    """The process that goes along the road; None when none does."""
    if not is_driven(folder):
        return None
    text = read_regular(folder / LOCK).decode("ascii", "replace").strip()
    return int(text) if text.isdecimal() else None


def is_driven(folder: Path) -> bool:
    """Whether a living process goes along the road: the kernel knows it by the lock."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not locked(descriptor, fcntl.LOCK_SH)  # shared: two that look at once do not take each other for a driver
    finally:
        os.close(descriptor)


def locked(descriptor: int, how: int) -> bool:
    """Lock an open file (``fcntl.LOCK_EX`` or ``LOCK_SH``) unless another process holds a lock that rules it out; whether that was done."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
