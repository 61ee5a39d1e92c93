"""A log as a read-only run in a workspace. Two passes over the file: the first checks every line and remembers only where it is
(:mod:`.index`), the second stores step by step. So nothing appears in the workspace until all of the file is known to be good, and memory
holds one step at a time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, NoReturn

from rlhf_studio.analysis.logs import records
from rlhf_studio.analysis.logs.index import MARK, OF_STEPS, LogIndex, given_settings, index_of, wrong
from rlhf_studio.analysis.logs.line import LogLine, plain_name
from rlhf_studio.analysis.logs.shape import MOST_FILE_BYTES, MOST_STEPS
from rlhf_studio.config import SECTIONS, RunConfig
from rlhf_studio.config.io import ConfigError, parse_ppo
from rlhf_studio.regular import UnfitFile, open_regular
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import create_run, new_folder
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.records import EventRecord, Origin, ProbeScore, RolloutRecord, SettingChange, StepRecord, WatchRecord
from rlhf_studio.runs.workspace import MAX_NAME
from rlhf_studio.runs.writer import RunWriter
from rlhf_studio.visible import refuse_hidden, visible

UNKNOWN = "unknown"
"""The model of a run whose log does not name it."""
PACKED = (b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zX")  # gzip, zip, zstandard, bzip2, xz

ReportProgress = Callable[[float], None]


@dataclass(frozen=True)
class Opened:
    """A log that has become a run: its id, how many steps and responses it has, and what people should know of it."""

    run_id: str
    steps: int
    rollouts: int
    notes: list[str]


def open_log(file: Path, workspace: Path, name: str = "", progress: ReportProgress = lambda fraction: None, *, called: str = "") -> Opened:
    """Make a run of a file of JSON Lines (``docs/logs.md``). ``progress`` hears how far it is, from 0 to 1.

    ``called`` is what a person calls the file where it has another name here, as one that a page has sent.

    Raises:
        ConfigError: the file cannot be used; the line and the field are named. Nothing was made then.
        StoreError: the workspace cannot be written.
    """
    title = name.strip() or visible(Path(file).stem, lines=False)[:MAX_NAME]
    if len(title) > MAX_NAME:
        raise wrong(f"a run's name has at most {MAX_NAME} characters, not {len(title)}")
    try:
        refuse_hidden(title, "a run's name")
    except ValueError as error:
        raise wrong(str(error)) from error
    with _opened(Path(file)) as source:
        size = os.fstat(source.fileno()).st_size
        index = index_of(source, lambda done: progress(0.5 * done / max(1, size)))
        _refuse_without_room(Path(workspace), size)
        config, origin = _settings_of(index, title, visible(called or Path(file).name, lines=False))
        run_id = paths.new_run_id()
        with new_folder(paths.run_dir(Path(workspace), run_id)) as building:
            create_run(building, config, name=title, origin=origin)
            notes = _second_pass(source, index, building, origin, lambda done: progress(0.5 + 0.5 * done))
    return Opened(run_id, len(index.steps), index.rollouts, notes)


def _opened(path: Path) -> BinaryIO:
    """The file, open for reading. Raises ConfigError for what is no ordinary file, is empty, compressed or too large."""
    try:
        file = open_regular(path)
    except UnfitFile as error:
        raise wrong(f"{path} is not a file; give one file of JSON Lines") from error
    except (OSError, ValueError) as error:
        raise wrong(f"the file {path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        size = os.fstat(file.fileno()).st_size
        if not 0 < size <= MOST_FILE_BYTES:
            raise wrong(f"{path} has {size:,} bytes; a log has at least one line, and at most {MOST_FILE_BYTES:,} bytes")
        if os.pread(file.fileno(), 4, 0).startswith(PACKED):
            raise wrong(f"{path} is compressed; unpack it first")
    except ConfigError:
        file.close()
        raise
    return file


def _refuse_without_room(workspace: Path, size: int) -> None:
    existing = Path(os.path.abspath(workspace))
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < size:
        raise StoreError(f"The disk is too full: the log has {size:,} bytes, and {free:,} are free at {existing}.", "full")


# --- second pass -----------------------------------------------------------------------------------------------------------------


def _settings_of(index: LogIndex, title: str, file_name: str) -> tuple[RunConfig, Origin]:
    """The run's settings as far as the log gives them, and an origin that says whether it gives them all."""
    given = given_settings(index.run) if index.run else {}
    complete = all(isinstance(given.get(section), dict) for section in SECTIONS)
    model = (index.run.text("model") if index.run else None) or UNKNOWN
    data = dict(given)
    if not complete:
        data["model"] = {"policy": model, **given.get("model", {})}
        data["data"] = {"prompts": UNKNOWN, **given.get("data", {})}
        data["ppo"] = {"steps": index.steps[-1] + index.shift, **given.get("ppo", {})}
        data["name"] = title
    named = [f"{section}.{name}" for section in SECTIONS if isinstance(given.get(section), dict) for name in given[section]]
    named += ["model.policy"] if model != UNKNOWN and "model.policy" not in named else []
    return parse_ppo(data), Origin(imported=file_name, settings_known=complete, settings_given=[] if complete else named)


def _second_pass(source: BinaryIO, index: LogIndex, folder: Path, origin: Origin, progress: ReportProgress) -> list[str]:
    """Store the run. Returns what people should know of it."""
    computed: set[str] = set()
    lock = EngineLock(folder)
    lock.acquire()
    try:
        with RunWriter(folder, wait_for_disk=False) as writer:  # nothing is lost: the log is still there
            device = index.run.text("device") if index.run else None
            writer.set_state("running", "Reading the log", device=device)
            total_steps = index.run.whole_number("total_steps", MOST_STEPS) if index.run else None
            writer.plan(max(index.steps[-1] + index.shift, total_steps or 0))
            _store_beginning(source, index, writer)
            pieces = index.pieces
            for count, step in enumerate(index.steps, 1):
                lines = _read_step(source, index, step)
                computed |= lines.complete(index.is_ours, step in index.without_metrics)
                writer.commit_step(lines.record(step + index.shift, pieces))
                pieces = {} if lines.episodes else pieces
                progress(count / len(index.steps))
            _store_rest(source, index, writer)
            notes = _notes(index, origin, computed)
            writer.event(EventRecord("info", "import", " ".join([f"Opened from the log {origin.imported}.", *notes])))
            writer.set_state("finished", "")
    finally:
        lock.release()
    return notes


@dataclass
class _StepLines:
    """The lines of one step."""

    metrics: dict[str, float] = field(default_factory=dict)
    rollouts: list[RolloutRecord] = field(default_factory=list)
    given: list[records.LoggedResponse] = field(default_factory=list)
    watched: list[WatchRecord] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    probes: list[ProbeScore] = field(default_factory=list)
    changes: list[SettingChange] = field(default_factory=list)
    episodes: LogLine | None = None

    def complete(self, ours: bool, none_given: bool) -> set[str]:
        """Add the metrics that the log does not give and that follow from its responses.

        Returns their names where the log gives other metrics of the step.

        A line of our own export has all metrics that there are, and may stand beside a part of its step's responses.
        """
        if ours and not none_given:
            return set()
        new = {name: value for name, value in records.metrics_of(self.given).items() if name not in self.metrics}
        self.metrics |= new
        return set() if none_given else set(new)

    def record(self, step: int, pieces: dict[int, str]) -> StepRecord:
        """The step's record."""
        return StepRecord(
            step=step,
            metrics=self.metrics,
            rollouts=sorted(self.rollouts, key=lambda record: record.sample),
            watched=self.watched,
            events=self.events,
            episodes=records.episodes(self.episodes, pieces) if self.episodes else None,
            probes=self.probes,
            changes=[replace(change, step=step) for change in self.changes],
        )


def _read_step(source: BinaryIO, index: LogIndex, step: int) -> _StepLines:
    lines = _StepLines()
    for number, first_byte, size in index.lines_of(step):
        source.seek(first_byte)
        line = LogLine(number, source.read(size).removeprefix(MARK))
        if line.kind not in OF_STEPS or records.step_of(line) != step:
            _changed(line)
        if line.kind == "step":
            lines.metrics |= line.numbers("metrics")
        elif line.kind == "rollout":
            lines.rollouts.append(records.rollout(line, len(lines.rollouts)))
            lines.given.append(records.logged_response(line, lines.rollouts[-1]))
        elif line.kind == "watched":
            lines.watched.append(records.watched(line))
        elif line.kind == "episodes":
            lines.episodes = line
        elif line.kind == "probe_score":
            lines.probes.append(records.probe_score(line, index.probes))
        elif line.kind == "change":
            lines.changes.append(records.change(line))
        else:
            lines.events.append(records.event(line))
    return lines


def _changed(line: LogLine) -> NoReturn:
    line.fail("", "the file changed while it was read; try again when nothing writes to it")


def _store_beginning(source: BinaryIO, index: LogIndex, writer: RunWriter) -> None:
    """What is of step 0, where the file has no training step of that number: the starting policy's answers."""
    if 0 in index.other_steps():
        lines = _read_step(source, index, 0)
        writer.watched(0, lines.watched)
        for event in lines.events:
            writer.event(event, 0)
        writer.probes(list(index.probes.values()), lines.probes)
    elif index.probes:
        writer.probes(list(index.probes.values()), [])


def _store_rest(source: BinaryIO, index: LogIndex, writer: RunWriter) -> None:
    """Answers and diary lines of steps that have neither metrics nor responses."""
    for step in index.other_steps():
        if step == 0:
            continue
        lines = _read_step(source, index, step)
        if lines.watched:
            writer.watched(step + index.shift, lines.watched)
        for event in lines.events:
            writer.event(event, step + index.shift)


def _notes(index: LogIndex, origin: Origin, computed: set[str]) -> list[str]:
    """What people should know of a run that was read from a log; ``computed`` are metrics that it lacks beside others."""
    notes = []
    if index.shift:
        notes.append("The file counts its steps from 0; here they count from 1.")
    if index.without_metrics:
        notes.append("The log has no metrics of its own for some steps; their curves are means over the responses in it.")
    if computed:
        notes.append(f"Metrics that the log does not give are computed from the responses in it: {', '.join(sorted(computed))}.")
    if index.too_likely:
        what = "1 response has" if index.too_likely == 1 else f"{index.too_likely:,} responses have"
        notes.append(
            f"{what} log-probabilities above 0, the first in line {index.first_too_likely}: no probability is above 1. They may be filling "
            "behind the end of a response; then their lengths and KLs are wrong too."
        )
    if not origin.settings_known:
        notes.append("The log does not give all settings; those that it does not give are defaults, not what was trained with.")
    if index.passed_over:
        hints = {name: f" (if that is the {other}, call it {other})" if other else "" for name, other in index.passed_over.items()}
        names = [plain_name(name) + hint for name, hint in hints.items()]
        notes.append(f"Fields that are not read: {', '.join(sorted(names))}.")
    return notes
