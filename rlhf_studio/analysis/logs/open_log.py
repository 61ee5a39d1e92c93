"""A log as a read-only run in a workspace. Others' records are first written to a temporary file as lines of our own kind
(:mod:`.translate`). Then there are two passes over the lines: the first checks every one and remembers only where it is (:mod:`.index`),
the second stores step by step. So nothing appears in the workspace until all of the log is known to be good, and memory holds one step at
a time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, NoReturn

from rlhf_studio.analysis.logs import records
from rlhf_studio.analysis.logs.forms.form import Reading
from rlhf_studio.analysis.logs.index import OF_STEPS, LogIndex, given_settings, index_of, wrong
from rlhf_studio.analysis.logs.line import LogLine, plain_name, read_object
from rlhf_studio.analysis.logs.shape import MARK, MOST_FILE_BYTES, MOST_LINE_BYTES, MOST_STEPS
from rlhf_studio.analysis.logs.sources import GrowingFile, cannot_be_read, open_file
from rlhf_studio.analysis.logs.translate import Places, Translation, spool
from rlhf_studio.config import SECTIONS, RunConfig
from rlhf_studio.config.io import ConfigError, parse_ppo
from rlhf_studio.language import S_
from rlhf_studio.regular import open_regular
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import create_run, new_folder
from rlhf_studio.runs.errors import StoreError, store_error
from rlhf_studio.runs.records import EventRecord, Origin, Probe, ProbeScore, RolloutRecord, SettingChange, StepRecord, WatchRecord
from rlhf_studio.runs.workspace import MAX_NAME
from rlhf_studio.runs.writer import RunWriter, write_run
from rlhf_studio.visible import refuse_hidden, visible

UNKNOWN = "unknown"
"""The model of a run whose log does not name it."""

ReportProgress = Callable[[float], None]


@dataclass(frozen=True)
class Opened:
    """A log that has become a run: its id, how many steps and responses it has, and what people should know of it."""

    run_id: str
    steps: int
    rollouts: int
    notes: list[str]


def open_log(
    file: Path,
    workspace: Path,
    name: str = "",
    progress: ReportProgress = lambda fraction: None,
    *,
    called: str = "",
    tokenizer: str = "",
    weights: str = "",
) -> Opened:
    """Make a run of a log, a file or a folder of files (``docs/logs.md``). ``progress`` hears how far it is, from 0 to 1.

    ``called`` is what a person calls the file where it has another name here, as one that a page has sent. ``tokenizer`` cuts texts that
    come without tokens, see :mod:`.cutting`. ``weights`` are those of TRL's reward columns, such as ``1,0.5``.

    Raises:
        ConfigError: the log cannot be used; the line and the field are named. Nothing was made then.
        StoreError: the workspace cannot be written.
    """
    title = title_of(file, name)
    label = visible(called or Path(file).resolve().name, lines=False)
    if _is_our_export(Path(file)) and not tokenizer and not weights:
        with _opened(Path(file)) as source:
            return _stored(source, Path(workspace), title, label, progress)
    translation = Translation(Path(file), tokenizer, weights)
    size = _size_of(Path(file), translation)
    between = Path(tempfile.gettempdir())
    _refuse_without_room(between, size)
    with tempfile.TemporaryFile(prefix="rlhf-studio-log-") as lines:

        def spooled(done: int) -> None:
            for place in (between, workspace):  # a packed log may grow by as much again, and its run needs what is there already
                _refuse_without_room(Path(place), lines.tell())
            progress(0.4 * min(1.0, done / max(1, size)))

        try:
            places = spool(translation, lines, spooled)
            lines.flush()
            lines.seek(0)
        except OSError as error:
            raise store_error(error, between) from error
        try:
            return _stored(lines, Path(workspace), title, label, lambda done: progress(0.4 + 0.6 * done), translation.reading, places)
        except ConfigError as error:
            raise places.in_their_words(error) from error


def title_of(file: Path, name: str) -> str:
    """The name of a log's run: ``name``, or that of the file or folder. Raises ConfigError for one that no run can have."""
    title = name.strip() or visible(Path(file).resolve().stem, lines=False)[:MAX_NAME] or "log"
    if len(title) > MAX_NAME:
        raise wrong(f"a run's name has at most {MAX_NAME} characters, not {len(title)}")
    try:
        refuse_hidden(title, S_("a run's name"))
    except ValueError as error:
        raise wrong(str(error)) from error
    return title


def _stored(
    source: BinaryIO,
    workspace: Path,
    title: str,
    label: str,
    progress: ReportProgress,
    reading: Reading | None = None,
    places: Places | None = None,
) -> Opened:
    """The run of lines of our own kind."""
    size = os.fstat(source.fileno()).st_size
    index = index_of(source, lambda done: progress(0.5 * done / max(1, size)))
    index.passed_over |= dict.fromkeys(reading.passed_over, "") if reading else {}
    _refuse_without_room(workspace, size)
    config, origin = settings_of(index, title, label, index.steps[-1] + index.shift, words=reading is not None and reading.words)
    origin = replace(origin, log_of=places.log_of if places else "", reward=reading.reward if reading else "")
    run_id = paths.new_run_id()
    with new_folder(paths.run_dir(workspace, run_id)) as building:
        create_run(building, config, name=title, origin=origin)
        said = list(reading.notes) if reading else []
        where = (lambda number: GrowingFile(Path()).place(number)) if places is None else places.of
        notes = _second_pass(source, index, building, origin, lambda done: progress(0.5 + 0.5 * done), said, where)
    return Opened(run_id, len(index.steps), index.rollouts, notes)


def _is_our_export(path: Path) -> bool:
    """Whether the first line of a file says that this program wrote it. Such a file is read where it lies."""
    try:
        with open_regular(path) as file:
            first = read_object(file.readline(MOST_LINE_BYTES).removeprefix(MARK))
    except (OSError, ValueError):
        return False
    return first.get("kind") == "run" and "format" in first


def _size_of(path: Path, translation: Translation) -> int:
    """Bytes of a log. Raises ConfigError for one that is not there, is empty or too large."""
    try:
        size = translation.size()
    except (OSError, ValueError) as error:
        raise cannot_be_read(path, error) from error
    if not path.is_dir():
        _opened(path).close()
    if size > MOST_FILE_BYTES:
        raise wrong(f"{path} has {size:,} bytes; a log has at least one line, and at most {MOST_FILE_BYTES:,} bytes")
    return size


def _opened(path: Path) -> BinaryIO:
    """The file, open for reading. Raises ConfigError for what is no ordinary file, is empty, compressed or too large."""
    try:
        file = open_file(path)
    except (OSError, ValueError) as error:
        raise cannot_be_read(path, error) from error
    size = os.fstat(file.fileno()).st_size
    if not 0 < size <= MOST_FILE_BYTES:
        file.close()
        raise wrong(f"{path} has {size:,} bytes; a log has at least one line, and at most {MOST_FILE_BYTES:,} bytes")
    return file


def _refuse_without_room(workspace: Path, size: int) -> None:
    existing = Path(os.path.abspath(workspace))
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < size:
        raise StoreError(f"The disk is too full: the log has {size:,} bytes, and {free:,} are free at {existing}.", "full")


# --- second pass -----------------------------------------------------------------------------------------------------------------


def settings_of(index: LogIndex, title: str, file_name: str, steps: int, words: bool) -> tuple[RunConfig, Origin]:
    """The run's settings as far as the log gives them, and an origin that says whether it gives them all.

    ``steps``: as many as it has. ``words``: whether its texts were cut at words here; an export of such a run says so itself.
    """
    given = given_settings(index.run) if index.run else {}
    complete = all(isinstance(given.get(section), dict) for section in SECTIONS)
    model = (index.run.text("model") if index.run else None) or UNKNOWN
    data = dict(given)
    if not complete:
        data["model"] = {"policy": model, **given.get("model", {})}
        data["data"] = {"prompts": UNKNOWN, **given.get("data", {})}
        data["ppo"] = {"steps": steps, **given.get("ppo", {})}
        data["name"] = title
    named = [f"{section}.{name}" for section in SECTIONS if isinstance(given.get(section), dict) for name in given[section]]
    named += ["model.policy"] if model != UNKNOWN and "model.policy" not in named else []
    words = words or bool(index.run and index.run.text("lengths") == "words")
    return parse_ppo(data), Origin(imported=file_name, settings_known=complete, settings_given=[] if complete else named, words=words)


def _second_pass(
    source: BinaryIO,
    index: LogIndex,
    folder: Path,
    origin: Origin,
    progress: ReportProgress,
    said: list[str],
    where: Callable[[int], str],
) -> list[str]:
    """Store the run. Returns what people should know of it: ``said`` already, and what the lines tell. ``where`` gives a line's place."""
    computed: set[str] = set()
    with write_run(folder, wait_for_disk=False) as writer:  # nothing is lost: the log is still there
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
        notes = [*said, *notes_of(index, origin, computed, where)]
        writer.event(EventRecord("info", "import", " ".join([S_(f"Opened from the log {origin.imported}."), *notes])))
        writer.set_state("finished", "")
    return notes


@dataclass
class StepLines:
    """The lines of one step."""

    metrics: dict[str, float] = field(default_factory=dict)
    rollouts: list[RolloutRecord] = field(default_factory=list)
    given: list[records.LoggedResponse] = field(default_factory=list)
    watched: list[WatchRecord] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    probes: list[ProbeScore] = field(default_factory=list)
    changes: list[SettingChange] = field(default_factory=list)
    episodes: LogLine | None = None

    def add(self, line: LogLine, probes: dict[int, Probe]) -> None:
        """Take a line of the step. Raises ConfigError."""
        if line.kind == "step":
            self.metrics |= line.numbers("metrics")
        elif line.kind == "rollout":
            self.rollouts.append(records.rollout(line, len(self.rollouts)))
            self.given.append(records.logged_response(line, self.rollouts[-1]))
        elif line.kind == "watched":
            self.watched.append(records.watched(line))
        elif line.kind == "episodes":
            self.episodes = line
        elif line.kind == "probe_score":
            self.probes.append(records.probe_score(line, probes))
        elif line.kind == "change":
            self.changes.append(records.change(line))
        else:
            self.events.append(records.event(line))

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


def _read_step(source: BinaryIO, index: LogIndex, step: int) -> StepLines:
    lines = StepLines()
    for number, first_byte, size in index.lines_of(step):
        source.seek(first_byte)
        line = LogLine(number, source.read(size).removeprefix(MARK))
        if line.kind not in OF_STEPS or records.step_of(line) != step:
            _changed(line)
        lines.add(line, index.probes)
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


def notes_of(index: LogIndex, origin: Origin, computed: set[str], where: Callable[[int], str]) -> list[str]:
    """What people should know of a run that was read from a log; ``computed`` are metrics that it lacks beside others."""
    notes = []
    if index.shift:
        notes.append(S_("The file counts its steps from 0; here they count from 1."))
    if index.without_metrics:
        notes.append(S_("The log has no metrics of its own for some steps; their curves are means over the responses in it."))
    if computed:
        notes.append(S_(f"Metrics that the log does not give are computed from the responses in it: {', '.join(sorted(computed))}."))
    if index.too_likely:
        what, first = S_(f"{index.too_likely:,} responses have"), where(index.first_too_likely)
        what = S_("1 response has") if index.too_likely == 1 else what
        notes.append(S_(f"{what} log-probabilities above 0, the first in {first}: no probability is above 1."))
        notes.append(S_("They may be filling behind the end of a response; then their lengths and KLs are wrong too."))
    if not origin.settings_known:
        notes.append(S_("The log does not give all settings; those that it does not give are not known."))
    if index.passed_over:
        notes.append(S_(f"Fields that are not read: {', '.join(sorted(map(plain_name, index.passed_over)))}."))
        meant = {plain_name(name): other for name, other in sorted(index.passed_over.items()) if other}
        notes += [S_(f"If {name} is the {other}, call it {other}.") for name, other in meant.items()]
    return notes
