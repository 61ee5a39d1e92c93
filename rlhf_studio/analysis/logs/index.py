"""Where the lines of a log are: one pass over the file, line by line, that checks each one and keeps a few whole numbers of it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np

from rlhf_studio.analysis.logs import records
from rlhf_studio.analysis.logs.line import LogLine, meant
from rlhf_studio.analysis.logs.shape import (
    FORMAT,
    MARK,
    MOST_LINE_BYTES,
    MOST_LINES,
    MOST_NAMES,
    MOST_PIECES,
    MOST_PIECES_TEXT,
    MOST_PROBES,
    MOST_RESPONSES,
    MOST_SAMPLES,
    MOST_STEP_BYTES,
    MOST_STEPS,
    MOST_TOKENS_IN_ALL,
    VERSION,
)
from rlhf_studio.config.io import ConfigError, Problem, parse_config
from rlhf_studio.language import S_
from rlhf_studio.runs.records import Probe

OF_STEPS = ("step", "rollout", "watched", "episodes", "probe_score", "change", "event")
TRAINED = ("rollout", "step", "episodes")  # kinds of lines that make a training step of their number
_NOT_GIVEN = -1


class LogIndex:
    """What the first pass over a file finds: some tens of bytes for each line, and what concerns the whole run.

    Attributes:
        run: the line that says what the run is.
        passed_over: names of fields that are not read, 20 at most, each with what was most likely meant, or an empty text.
        rollouts, tokens: of the whole file.
        shift: 1 where the file counts its steps from 0.
        steps: the steps of the run, as the file counts them, in order.
        without_metrics: those among them without a line of metrics.
        too_likely: responses with a log-probability above 0, which no token has; the line of the first is ``first_too_likely``.
    """

    def __init__(self) -> None:
        self.run: LogLine | None = None
        self.probes: dict[int, Probe] = {}
        self.pieces: dict[int, str] = {}
        self.passed_over: dict[str, str] = {}
        self.rollouts = self.tokens = self.shift = 0
        self.steps: list[int] = []
        self.without_metrics: set[int] = set()
        self._pieces_text = self.too_likely = self.first_too_likely = 0
        self._names: dict[str, set[str]] = {"metrics": set(), "components": set()}
        self._columns = {name: array("q") for name in ("step", "number", "first_byte", "size", "kind", "sample")}
        self._rows: dict[str, np.ndarray] = {}

    @property
    def is_ours(self) -> bool:
        """Whether this program wrote the file."""
        return self.run is not None and self.run.fields.get("format") == FORMAT

    def add(self, line: LogLine, first_byte: int, size: int) -> None:
        """Check one line, and remember where it is. Raises ConfigError."""
        if len(self.passed_over) < 20:
            new = line.fields.keys() - records.READ[line.kind] - self.passed_over.keys()
            for name in sorted(new)[: 20 - len(self.passed_over)]:
                self.passed_over[name[:60]] = meant(name, records.READ[line.kind] - line.fields.keys())
        if line.kind in _OF_RUN:
            _OF_RUN[line.kind](self, line)
        if line.kind in OF_STEPS:
            step, sample = records.step_of(line), _OF_STEP[line.kind](self, line)
            row = (step, line.number, first_byte, size, OF_STEPS.index(line.kind), _NOT_GIVEN if sample is None else sample)
            for column, value in zip(self._columns.values(), row, strict=True):
                column.append(value)

    def close(self) -> None:
        """Put the lines in the order of their steps, and check what only all lines together tell. Raises ConfigError."""
        rows = {name: np.frombuffer(column, np.int64) if column else np.zeros(0, np.int64) for name, column in self._columns.items()}
        order = np.argsort(rows["step"], kind="stable")
        self._rows = {name: column[order] for name, column in rows.items()}
        self._columns.clear()
        trained = np.isin(self._rows["kind"], [OF_STEPS.index(kind) for kind in TRAINED])
        if not trained.any():
            raise wrong("the file holds no training step: no response and no metrics")
        self._check_sizes()
        self._check_samples()
        self.steps = np.unique(self._rows["step"][trained]).tolist()
        self.without_metrics = set(self.steps) - set(self._rows["step"][self._rows["kind"] == OF_STEPS.index("step")].tolist())
        self.shift = 1 if self.steps[0] == 0 else 0

    def other_steps(self) -> list[int]:
        """The steps that have lines and are none of :attr:`steps`, in order."""
        return sorted(set(np.unique(self._rows["step"]).tolist()) - set(self.steps))

    def lines_of(self, step: int) -> list[tuple[int, int, int]]:
        """(line number, first byte, bytes) of each line of a step, in the order of the file."""
        first, last = np.searchsorted(self._rows["step"], [step, step + 1])
        columns = (self._rows[name][first:last].tolist() for name in ("number", "first_byte", "size"))
        return list(zip(*columns, strict=True))

    def _check_sizes(self) -> None:
        """The lines of one step are held in memory together."""
        step, size = self._rows["step"], self._rows["size"]
        total = np.cumsum(size)
        first = np.searchsorted(step, step)  # where each line's step begins
        over = np.flatnonzero(total - (total[first] - size[first]) > MOST_STEP_BYTES)
        if len(over):
            row = over[np.argmin(self._rows["number"][over])]
            message = f"the lines of step {step[row]} have more than {MOST_STEP_BYTES:,} bytes together"
            raise ConfigError([Problem(f"line {self._rows['number'][row]}, step", message)])

    def _check_samples(self) -> None:
        """No two responses of a step have the same number. One that is not given is the number of responses before it in the step."""
        is_rollout = self._rows["kind"] == OF_STEPS.index("rollout")
        step, number, sample = (self._rows[name][is_rollout] for name in ("step", "number", "sample"))
        before = np.arange(len(step)) - np.searchsorted(step, step)
        sample = np.where(sample == _NOT_GIVEN, before, sample)
        order = np.lexsort((number, sample, step))
        step, number, sample = step[order], number[order], sample[order]
        twice = np.flatnonzero((np.diff(step) == 0) & (np.diff(sample) == 0)) + 1
        if len(twice):
            row = twice[np.argmin(number[twice])]
            message = f"step {step[row]} has a response {sample[row]} already; number them from 0, or leave sample out"
            raise ConfigError([Problem(f"line {number[row]}, sample", message)])

    # --- one kind of line each -----------------------------------------------------------------------------------------------------

    def _check_run(self, line: LogLine) -> None:
        if self.run is not None:
            line.fail("kind", S_(f"line {self.run.number} says already what the run is"))
        given = line.fields.get("format")
        if given is not None and (given != FORMAT or line.fields.get("version") != VERSION):
            line.fail(
                "format", S_(f"this program reads {FORMAT}, version {VERSION}; open the file with the program that wrote it, or newer")
            )
        line.whole_number("total_steps", MOST_STEPS)
        for name in ("name", "model", "device"):
            if len(line.text(name) or "") > 4000:
                line.fail(name, S_("it has more than 4,000 characters"))
        given_settings(line)
        self.run = line

    def _check_pieces(self, line: LogLine) -> None:
        new = line.pieces("pieces")
        self.pieces |= new
        self._pieces_text += sum(map(len, new.values()))
        if len(self.pieces) > MOST_PIECES or self._pieces_text > MOST_PIECES_TEXT:
            line.fail("pieces", S_(f"the file has more than {MOST_PIECES:,} token ids, or {MOST_PIECES_TEXT:,} characters as their texts"))

    def _check_probe(self, line: LogLine) -> None:
        probe = records.probe(line)
        self.probes[probe.probe] = probe
        if len(self.probes) > MOST_PROBES:
            line.fail("probe", S_(f"the file has more than {MOST_PROBES:,} probes"))
        self._count(line, len(probe.pieces))

    def _check_rollout(self, line: LogLine) -> int | None:
        record = records.rollout(line, 0)
        self._count_names(line, "components", record.parts)
        self.rollouts += 1
        if self.rollouts > MOST_RESPONSES:
            line.fail("", S_(f"the file has more than {MOST_RESPONSES:,} responses; open a part of it"))
        self._count(line, 0 if record.tokens is None else len(record.tokens.response_pieces) + len(record.tokens.prompt_ids))
        if records.too_likely(record):
            self.too_likely += 1
            self.first_too_likely = self.first_too_likely or line.number
        return line.whole_number("sample", MOST_SAMPLES)

    def _check_metrics(self, line: LogLine) -> None:
        self._count_names(line, "metrics", line.numbers("metrics"))

    def _check_watched(self, line: LogLine) -> None:
        self._count(line, len(records.watched(line).pieces))

    def _check_episodes(self, line: LogLine) -> None:
        episodes = records.episodes(line, {})
        self._count_names(line, "components", episodes.parts)
        self._count(line, len(episodes.response_ids))

    def _check_probe_score(self, line: LogLine) -> None:
        self._count(line, len(records.probe_score(line, self.probes).logprobs))

    def _check_change(self, line: LogLine) -> None:
        records.change(line)

    def _check_event(self, line: LogLine) -> None:
        records.event(line)

    def _count_names(self, line: LogLine, field: str, names: Iterable[str]) -> None:
        """Each name is a curve of its own, with a number for each step."""
        self._names[field].update(names)
        if len(self._names[field]) > MOST_NAMES:
            line.fail(
                field, S_(f"the file has more than {MOST_NAMES:,} different names here up to this line; a name is not to be made anew")
            )

    def _count(self, line: LogLine, tokens: int) -> None:
        self.tokens += tokens
        if self.tokens > MOST_TOKENS_IN_ALL:
            line.fail("", S_(f"the file has more than {MOST_TOKENS_IN_ALL:,} tokens up to here; open a part of it"))


_OF_RUN: dict[str, Callable[[LogIndex, LogLine], None]] = {
    "run": LogIndex._check_run,
    "pieces": LogIndex._check_pieces,
    "probe": LogIndex._check_probe,
}
# What a line gives back is the number of its response within the step, where it says one.
_OF_STEP: dict[str, Callable[[LogIndex, LogLine], int | None]] = {
    "step": LogIndex._check_metrics,
    "rollout": LogIndex._check_rollout,
    "watched": LogIndex._check_watched,
    "episodes": LogIndex._check_episodes,
    "probe_score": LogIndex._check_probe_score,
    "change": LogIndex._check_change,
    "event": LogIndex._check_event,
}


def index_of(source: BinaryIO, progress: Callable[[int], None]) -> LogIndex:
    """Read a file once. ``progress`` hears at which byte it is. Raises ConfigError."""
    index = LogIndex()
    for number, first_byte, data in _lines(source):
        index.add(LogLine(number, data.removeprefix(MARK)), first_byte, len(data))
        progress(first_byte)
    index.close()
    return index


def _lines(source: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """(number, first byte, bytes) of each line that is not blank."""
    first_byte = 0
    for number in range(1, MOST_LINES + 2):
        data = source.readline(MOST_LINE_BYTES + 1)
        if not data:
            return
        if len(data) > MOST_LINE_BYTES or number > MOST_LINES:
            limit = S_(f"a line of at most {MOST_LINE_BYTES:,} bytes") if number <= MOST_LINES else S_(f"at most {MOST_LINES:,} lines")
            raise ConfigError([Problem(f"line {number}", f"the file is too long here: {limit} is read")])
        if data.removeprefix(MARK).strip():
            yield number, first_byte, data
        first_byte += len(data)


def given_settings(line: LogLine) -> dict[str, Any]:
    """The settings that the log gives, section by section; names may be dotted. Raises ConfigError for one that there is not."""
    nested: dict[str, Any] = {}
    for name, value in line.members("settings").items():
        section, dot, rest = name.partition(".")
        if dot:
            part = nested.setdefault(section, {})
            if not isinstance(part, dict):
                line.fail(f"settings.{name[:80]}", S_("the section is given in two ways"))
            part[rest] = value
        else:
            nested[name] = value
    try:
        parse_config(nested)
    except ConfigError as error:
        problem = error.problems[0]
        line.fail(f"settings.{problem.field}", problem.message)
    return nested


def wrong(message: str) -> ConfigError:
    """A sentence about the whole file."""
    return ConfigError([Problem("", message)])
