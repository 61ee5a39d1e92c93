"""A log as a read-only run in a workspace. Two passes over the file: the first checks every line and remembers only where each step's
lines are, the second stores step by step. So nothing appears in the workspace until all of the file is known to be good, and memory
holds one step at a time.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from rlhf_studio.config import SECTIONS, RunConfig
from rlhf_studio.config_io import ConfigError, Problem, parse_config
from rlhf_studio.logs import records
from rlhf_studio.logs.line import LogLine
from rlhf_studio.logs.shape import (
    FORMAT,
    MOST_FILE_BYTES,
    MOST_LINE_BYTES,
    MOST_LINES,
    MOST_STEP_BYTES,
    MOST_STEPS,
    MOST_TEXT,
    VERSION,
)
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.errors import StoreError, store_error
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.records import EventRecord, Origin, Probe, ProbeScore, RolloutRecord, SettingChange, StepRecord, WatchRecord
from rlhf_studio.runs.workspace import MAX_NAME
from rlhf_studio.runs.writer import RunWriter

UNKNOWN = "unknown"
"""The model of a run whose log does not name it."""
MARK = b"\xef\xbb\xbf"  # what some programs write at the beginning of a UTF-8 file
PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zX")  # gzip, zip, zstandard, bzip2, xz
OF_STEPS = ("step", "rollout", "watched", "episodes", "probe_score", "change", "event")

Told = Callable[[float], None]


@dataclass(frozen=True)
class Opened:
    """A log that has become a run: its id, how many steps and responses it has, and what people should know of it."""

    run_id: str
    steps: int
    rollouts: int
    notes: list[str]


@dataclass
class _Index:
    """What the first pass leaves behind. ``places``: step -> (line number, first byte, bytes) of each of its lines."""

    run: LogLine | None = None
    places: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    probes: dict[int, Probe] = field(default_factory=dict)
    pieces: dict[int, str] = field(default_factory=dict)
    passed_over: set[str] = field(default_factory=set)
    rollouts: int = 0
    with_metrics: set[int] = field(default_factory=set)
    with_data: set[int] = field(default_factory=set)
    shift: int = 0


def open_log(file: Path, workspace: Path, name: str = "", told: Told = lambda fraction: None) -> Opened:
    """Make a run of a file of JSON Lines (``docs/logs.md``). ``told`` hears how far it is, from 0 to 1.

    Raises:
        ConfigError: the file cannot be used; the line and the field are named. Nothing was made then.
        StoreError: the workspace cannot be written.
    """
    title = name.strip() or Path(file).stem[:MAX_NAME]
    if len(title) > MAX_NAME:
        raise _wrong(f"a run's name has at most {MAX_NAME} characters, not {len(title)}")
    with _opened(Path(file)) as source:
        size = os.fstat(source.fileno()).st_size
        index = _first_pass(source, lambda done: told(0.5 * done / max(1, size)))
        _refuse_without_room(Path(workspace), size)
        config, origin = _settings_of(index, title, Path(file).name)
        run_id = paths.new_run_id()
        folder = paths.run_dir(Path(workspace), run_id)
        building = folder.parent / f"{paths.NEW_PREFIX}{secrets.token_hex(8)}"
        try:
            create_run(building, config, name=title, origin=origin)
            _second_pass(source, index, building, origin, lambda done: told(0.5 + 0.5 * done))
            os.rename(building, folder)
        except OSError as error:
            raise store_error(error, folder) from error
        finally:
            shutil.rmtree(building, ignore_errors=True)  # gone already when all went well
    return Opened(run_id, len(_steps(index)), index.rollouts, _notes(index, origin))


def open_log_text(text: str, file_name: str, workspace: Path, name: str = "") -> Opened:
    """The same for the text of a file, as a page sends it. Raises as :func:`open_log`."""
    plain = Path(file_name.replace("\\", "/")).name
    with tempfile.TemporaryDirectory(prefix="rlhf-studio-log-") as folder:
        place = Path(folder) / "log.jsonl"
        place.write_bytes(text.encode("utf-8", "surrogatepass"))
        return open_log(place, workspace, (name.strip() or Path(plain).stem or "log")[:MAX_NAME])


def _wrong(message: str) -> ConfigError:
    return ConfigError([Problem("", message)])


def _opened(path: Path) -> BinaryIO:
    """The file, open for reading. Raises ConfigError for what is no ordinary file, is empty, compressed or too large."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _wrong(f"the file {path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _wrong(f"{path} is not a file; give one file of JSON Lines")
        if not 0 < found.st_size <= MOST_FILE_BYTES:
            raise _wrong(f"{path} has {found.st_size:,} bytes; a log has at least one line, and at most {MOST_FILE_BYTES:,} bytes")
        if os.pread(descriptor, 4, 0).startswith(PACKED):
            raise _wrong(f"{path} is compressed; unpack it first")
        return os.fdopen(descriptor, "rb")
    except ConfigError:
        os.close(descriptor)
        raise


def _refuse_without_room(workspace: Path, size: int) -> None:
    place = Path(os.path.abspath(workspace))
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < size:
        raise StoreError(f"The disk is too full: the log has {size:,} bytes, and {free:,} are free at {place}.", "full")


# --- first pass ------------------------------------------------------------------------------------------------------------------


def _lines(source: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """(number, first byte, bytes) of each line that is not blank."""
    place = 0
    for number in range(1, MOST_LINES + 2):
        data = source.readline(MOST_LINE_BYTES + 1)
        if not data:
            return
        if len(data) > MOST_LINE_BYTES or number > MOST_LINES:
            limit = f"a line of at most {MOST_LINE_BYTES:,} bytes" if number <= MOST_LINES else f"at most {MOST_LINES:,} lines"
            raise ConfigError([Problem(f"line {number}", f"the file is too long here: {limit} is read")])
        if data.removeprefix(MARK).strip():
            yield number, place, data
        place += len(data)


def _first_pass(source: BinaryIO, told: Told) -> _Index:
    index = _Index()
    seen: dict[int, set[int]] = {}
    bytes_of: dict[int, int] = {}
    for number, place, data in _lines(source):
        line = LogLine(number, data.removeprefix(MARK))
        extra = line.fields.keys() - records.READ[line.kind]
        if len(index.passed_over) < 20:
            index.passed_over |= {name[:60] for name in extra}
        step = _note(line, index, seen)
        if step is not None:
            index.places.setdefault(step, []).append((number, place, len(data)))
            bytes_of[step] = bytes_of.get(step, 0) + len(data)
            if bytes_of[step] > MOST_STEP_BYTES:
                line.fail("step", f"the lines of step {step} have more than {MOST_STEP_BYTES:,} bytes together")
        told(place)
    if not index.with_data:
        raise _wrong("the file holds no training step: no response and no metrics")
    if min(index.with_data) == 0:
        index.shift = 1
    return index


def _note(line: LogLine, index: _Index, seen: dict[int, set[int]]) -> int | None:
    """Check one line, and remember what is not of a step. Returns the step that the line is of; None for what is kept here."""
    if line.kind == "run":
        _check_run(line, index)
    elif line.kind == "pieces":
        index.pieces |= line.pieces("pieces")
        if len(index.pieces) > MOST_TEXT:
            line.fail("pieces", f"the file has the text of more than {MOST_TEXT:,} token ids")
    elif line.kind == "probe":
        probe = records.probe(line)
        index.probes[probe.probe] = probe
    if line.kind not in OF_STEPS:
        return None
    step = records.step_of(line)
    if line.kind == "rollout":
        numbers = seen.setdefault(step, set())
        record = records.rollout(line, len(numbers))
        if record.sample in numbers:
            line.fail("sample", f"step {step} has a response {record.sample} already; number them from 0, or leave sample out")
        numbers.add(record.sample)
        index.rollouts += 1
    else:
        _CHECKS[line.kind](line, index)
    if line.kind in ("rollout", "step", "episodes"):
        index.with_data.add(step)
    if line.kind == "step":
        index.with_metrics.add(step)
    return step


_CHECKS: dict[str, Callable[[LogLine, _Index], Any]] = {
    "step": lambda line, index: line.numbers("metrics"),
    "watched": lambda line, index: records.watched(line),
    "episodes": lambda line, index: records.episodes(line, {}),
    "probe_score": lambda line, index: records.probe_score(line, index.probes),
    "change": lambda line, index: records.change(line),
    "event": lambda line, index: records.event(line),
}


def _check_run(line: LogLine, index: _Index) -> None:
    if index.run is not None:
        line.fail("kind", f"line {index.run.number} says already what the run is")
    given = line.fields.get("format")
    if given is not None and (given != FORMAT or line.fields.get("version") != VERSION):
        line.fail("format", f"this program reads {FORMAT}, version {VERSION}; open the file with the program that wrote it, or newer")
    line.whole("total_steps", MOST_STEPS)
    for name in ("name", "model", "device"):
        if len(line.text(name) or "") > 4000:
            line.fail(name, "it has more than 4,000 characters")
    _given_settings(line)
    index.run = line


def _given_settings(line: LogLine) -> dict[str, Any]:
    """The settings that the log gives, section by section; names may be dotted. Raises ConfigError for one that there is not."""
    nested: dict[str, Any] = {}
    for name, value in line.members("settings").items():
        section, dot, rest = name.partition(".")
        if dot:
            part = nested.setdefault(section, {})
            if not isinstance(part, dict):
                line.fail(f"settings.{name[:80]}", "the section is given in two ways")
            part[rest] = value
        else:
            nested[name] = value
    try:
        parse_config(nested)
    except ConfigError as error:
        problem = error.problems[0]
        line.fail(f"settings.{problem.field}", problem.message)
    return nested


# --- second pass -----------------------------------------------------------------------------------------------------------------


def _steps(index: _Index) -> list[int]:
    """The steps that the run gets, as the file counts them."""
    return sorted(step for step in index.places if step in index.with_data)


def _settings_of(index: _Index, title: str, file_name: str) -> tuple[RunConfig, Origin]:
    """The run's settings as far as the log gives them, and an origin that says whether it gives them all."""
    given = _given_settings(index.run) if index.run else {}
    whole = all(isinstance(given.get(section), dict) for section in SECTIONS)
    model = (index.run.text("model") if index.run else None) or UNKNOWN
    data = dict(given)
    if not whole:
        data["model"] = {"policy": model, **given.get("model", {})}
        data["data"] = {"prompts": UNKNOWN, **given.get("data", {})}
        data["ppo"] = {"steps": _steps(index)[-1] + index.shift, **given.get("ppo", {})}
        data["name"] = title
    return parse_config(data), Origin(imported=file_name, settings_known=whole)


def _second_pass(source: BinaryIO, index: _Index, folder: Path, origin: Origin, told: Told) -> None:
    lock = EngineLock(folder)
    lock.acquire()
    try:
        with RunWriter(folder, wait_for_disk=False) as writer:  # nothing is lost: the log is still there
            device = index.run.text("device") if index.run else None
            writer.set_state("running", "Reading the log", device=device)
            told_steps = index.run.whole("total_steps", MOST_STEPS) if index.run else None
            steps = _steps(index)
            writer.plan(max(steps[-1] + index.shift, told_steps or 0))
            _store_beginning(source, index, writer)
            pieces = index.pieces
            for count, step in enumerate(steps, 1):
                found = _read_step(source, index, step)
                writer.commit_step(found.record(step + index.shift, pieces, step not in index.with_metrics))
                pieces = {} if found.episodes else pieces
                told(count / len(steps))
            _store_rest(source, index, writer)
            writer.event(EventRecord("info", "import", " ".join([f"Opened from the log {origin.imported}.", *_notes(index, origin)])))
            writer.set_state("finished", "")
    finally:
        lock.release()


@dataclass
class _Step:
    """The lines of one step."""

    metrics: dict[str, float] = field(default_factory=dict)
    rollouts: list[RolloutRecord] = field(default_factory=list)
    watched: list[WatchRecord] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    probes: list[ProbeScore] = field(default_factory=list)
    changes: list[SettingChange] = field(default_factory=list)
    episodes: LogLine | None = None

    def record(self, step: int, pieces: dict[int, str], own_metrics: bool) -> StepRecord:
        """The step's record; ``own_metrics``: its metrics are computed from its responses, as the log gives none."""
        return StepRecord(
            step=step,
            metrics=records.metrics_of(self.rollouts) if own_metrics else self.metrics,
            rollouts=sorted(self.rollouts, key=lambda record: record.sample),
            watched=self.watched,
            events=self.events,
            episodes=records.episodes(self.episodes, pieces) if self.episodes else None,
            probes=self.probes,
            changes=[replace(change, step=step) for change in self.changes],
        )


def _read_step(source: BinaryIO, index: _Index, step: int) -> _Step:
    found = _Step()
    for number, place, size in index.places[step]:
        source.seek(place)
        line = LogLine(number, source.read(size).removeprefix(MARK))
        if line.kind not in OF_STEPS or records.step_of(line) != step:
            _changed(line)
        if line.kind == "step":
            found.metrics |= line.numbers("metrics")
        elif line.kind == "rollout":
            found.rollouts.append(records.rollout(line, len(found.rollouts)))
        elif line.kind == "watched":
            found.watched.append(records.watched(line))
        elif line.kind == "episodes":
            found.episodes = line
        elif line.kind == "probe_score":
            found.probes.append(records.probe_score(line, index.probes))
        elif line.kind == "change":
            found.changes.append(records.change(line))
        else:
            found.events.append(records.event(line))
    return found


def _changed(line: LogLine) -> NoReturn:
    line.fail("", "the file changed while it was read; try again when nothing writes to it")


def _store_beginning(source: BinaryIO, index: _Index, writer: RunWriter) -> None:
    """What is of step 0, where the file has no training step of that number: the starting policy's answers."""
    if 0 in index.places and 0 not in index.with_data:
        found = _read_step(source, index, 0)
        writer.watched(0, found.watched)
        for event in found.events:
            writer.event(event, 0)
        writer.probes(list(index.probes.values()), found.probes)
    elif index.probes:
        writer.probes(list(index.probes.values()), [])


def _store_rest(source: BinaryIO, index: _Index, writer: RunWriter) -> None:
    """Answers and diary lines of steps that have neither metrics nor responses."""
    for step in sorted(index.places.keys() - index.with_data - {0}):
        found = _read_step(source, index, step)
        if found.watched:
            writer.watched(step + index.shift, found.watched)
        for event in found.events:
            writer.event(event, step + index.shift)


def _notes(index: _Index, origin: Origin) -> list[str]:
    """What people should know of a run that was read from a log."""
    notes = []
    if index.shift:
        notes.append("The file counts its steps from 0; here they count from 1.")
    if index.with_data - index.with_metrics:
        notes.append("The log has no metrics of its own for some steps; their curves are means over the responses in it.")
    if not origin.settings_known:
        notes.append("The log does not give all settings; those that it does not give are defaults, not what was trained with.")
    if index.passed_over:
        notes.append(f"Fields that are not read: {', '.join(sorted(index.passed_over))}.")
    return notes
