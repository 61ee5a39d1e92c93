"""Others' records as lines of our own kind: which files of a log are read, in which form, and where each line came from."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NoReturn

from rlhf_studio.analysis.logs.cutting import cutter_of
from rlhf_studio.analysis.logs.forms import board, trl
from rlhf_studio.analysis.logs.forms.form import Form, Reading
from rlhf_studio.analysis.logs.line import plain_name
from rlhf_studio.analysis.logs.recognize import form_of, unreadable, what_is_missing, what_is_wrong
from rlhf_studio.analysis.logs.rows import Row
from rlhf_studio.analysis.logs.shape import MOST_FILE_BYTES, MOST_LINE_BYTES, MOST_LINES, MOST_STEP_BYTES, LogFields
from rlhf_studio.analysis.logs.sources import LINES, PARQUET, GrowingFile, cannot_be_read, files_of
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.language import S_

MOST_SHOWN = 5  # names of files


@dataclass(frozen=True)
class TranslatedLine:
    """A line of our own kind, and the record that it was made of; ``problem`` says why there is none."""

    file: GrowingFile
    number: int
    fields: LogFields | None
    problem: str = ""


class Translation:
    """Reads a log, a file or a folder, as far as it is there; asked again, it gives what is new.

    Args:
        path: of the log.
        tokenizer: what cuts texts, see :func:`~rlhf_studio.analysis.logs.cutting.cutter_of`.
        weights: of TRL's reward columns, with commas between; empty where nobody knows them.

    Attributes:
        form: which one the log has; None until its first record was read.
        files: those that were read.
        unread: what could not be read when it was asked for last, by the names of files, and why.
    """

    def __init__(self, path: Path, tokenizer: str = "", weights: str = ""):
        self._path = path
        self._all: dict[str, GrowingFile] = {}
        self._passed: dict[str, str] = {}  # names of files that have another form, each with what is wrong
        self.reading = Reading(cutter_of(tokenizer), weights=trl.weights_of(weights))
        self.form: Form | None = None
        self.files: list[GrowingFile] = []
        self.unread: dict[str, str] = {}

    def size(self) -> int:
        """Bytes of all files of the log."""
        return sum(file.path.stat().st_size for file in files_of(self._path))

    def lines(
        self, last: bool = True, done: Callable[[int], None] = lambda bytes_read: None, *, patient: bool = False
    ) -> Iterator[TranslatedLine]:
        """The lines that are new. ``last``: nothing more is written, so that a log without a record is refused.

        ``done`` hears how many bytes are read. ``patient``: what cannot be read now is in :attr:`unread`, and tried again when asked again.
        Raises ConfigError for a log of no form, and for one that cannot be read where nobody is patient.
        """
        before, again, self.unread = 0, self.unread, {}
        try:
            present = self._present()
        except OSError as error:
            self._cannot_read("", self._path, error, patient)
            present = []
        for file in present:
            try:
                if file.name not in self._passed and (_has_changed(file) or last or file.name in again):
                    yield from self._new_in(file, last, before, done)
            except OSError as error:
                self._cannot_read(file.name, file.path, error, patient)
            before += max(0, file.size)
        if last:
            self._check_all()

    def _new_in(self, file: GrowingFile, last: bool, before: int, done: Callable[[int], None]) -> Iterator[TranslatedLine]:
        try:
            for batch in file.batches(last):
                yield from self._translated(file, batch)
                done(before + file.offset)
        except ConfigError as error:
            if not file.name or file in self.files:
                raise
            self._passed[file.name] = error.problems[0].message  # such as a compressed file beside the others

    def _cannot_read(self, name: str, path: Path, error: OSError, patient: bool) -> None:
        problem = cannot_be_read(path, error)
        if not patient:
            raise problem from error
        if not isinstance(error, FileNotFoundError):  # that one has just gone
            self.unread[name] = problem.problems[0].message

    def why_nothing(self) -> str:
        """Why no file that is there belongs to the log; empty when one does, or when there is none."""
        if self.form is not None or not self._passed:
            return ""
        name, why = next(iter(self._passed.items()))
        return f"{plain_name(name)}: {why}"

    def _present(self) -> list[GrowingFile]:
        return [self._all.setdefault(file.name, file) for file in files_of(self._path)]

    def _translated(self, file: GrowingFile, batch: list[Row]) -> Iterator[TranslatedLine]:
        if file not in self.files and not self._takes(file, batch[0]):
            return
        assert self.form is not None
        fit: list[Row] = []
        for row in batch:
            if row.fields is None:
                yield TranslatedLine(file, row.number, None, row.problem)
            elif self.form.missing(row.fields):
                yield TranslatedLine(file, row.number, None, what_is_missing(self.form, row.fields))
            else:
                fit.append(row)
        for index, fields in self.form.translate([row.fields for row in fit if row.fields is not None], self.reading):
            yield TranslatedLine(file, fit[index].number, fields)

    def _takes(self, file: GrowingFile, first: Row) -> bool:
        """Whether a file belongs to the log; the first one that has a form decides which."""
        if first.fields is None:
            why = first.problem if file.unit == "row" else unreadable(_start_of(file.path), first.problem)
            return self._pass(file, why, first.number)
        form = form_of(first.fields)
        if form is None or self.form not in (None, form):
            return self._pass(file, what_is_wrong(first.fields), first.number)
        if self.reading.weights and form is not trl.FORM:
            raise ConfigError([Problem("", f"reward weights are for {trl.FORM.what}; this log is of another form: {form.what}")])
        self.form = form
        self.files.append(file)
        folders = list(dict.fromkeys(_folder_of(file.name) for file in self.files))
        if len(folders) > 1:
            message = f"{self._path} has rollouts in several folders ({', '.join(folders)}); give one of them"
            raise ConfigError([Problem("", message)])
        return True

    def _pass(self, file: GrowingFile, why: str, number: int) -> bool:
        if not file.name:
            raise ConfigError([Problem(file.place(number), why)])
        self._passed[file.name] = why
        return False

    def _check_all(self) -> None:
        if self.form is None:
            self._refuse()
        for file in self._all.values():
            if file.half and file.name not in self._passed:
                self.reading.note(f"The end of {file.name or 'the file'} is only half written and was left out.")
        if self._passed:
            names = [plain_name(name) for name in list(self._passed)[:MOST_SHOWN]]
            more = "" if len(self._passed) <= MOST_SHOWN else S_(f" and {len(self._passed) - MOST_SHOWN} more")
            self.reading.note(f"Files of another form were passed over: {', '.join(names)}{more}.")

    def _refuse(self) -> NoReturn:
        if self.unread:
            raise ConfigError([Problem("", next(iter(self.unread.values())))])
        if not self._path.exists():
            raise ConfigError([Problem("", f"{self._path} is not there")])
        if self._passed:
            name, why = next(iter(self._passed.items()))
            raise ConfigError([Problem(self._all[name].place(1), why)])
        if not self._path.is_dir():
            halves = any(file.half for file in self._all.values())
            half = S_(f"{self._path} has only a half-written line; open it when there is more")
            raise ConfigError([Problem("", half if halves else f"{self._path} holds no training step: no response and no metrics")])
        endings = ", ".join([*LINES, PARQUET])
        raise ConfigError([Problem("", f"{self._path} has no rollouts: there is no file with a line in it that ends in {endings}")])


def _has_changed(file: GrowingFile) -> bool:
    """Whether there is something new in a file; not in one that has just gone."""
    try:
        return file.look()
    except FileNotFoundError:
        return False


def _folder_of(name: str) -> str:
    """The folder of a file, the same for folders that differ in numbers alone."""
    return re.sub(r"[0-9]+", "N", str(PurePosixPath(name).parent)) if name else ""


def _start_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(400)


class Places:
    """Where each line of a translated log came from."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._files: dict[int, GrowingFile] = {}
        self._file_of, self._numbers = array("q"), array("q")

    def add(self, line: TranslatedLine) -> None:
        """Remember the next line."""
        self._files.setdefault(id(line.file), line.file)
        self._file_of.append(id(line.file))
        self._numbers.append(line.number)

    @property
    def log_of(self) -> str:
        """The program that wrote the log; empty where several write this form."""
        return "" if self._form is board.FORM else self._form.name

    def of(self, number: int, field: str = "") -> str:
        """The place of a line, or of its ``field``, numbers from 1."""
        return self.file_of(number).place(self._numbers[number - 1], field)

    def file_of(self, number: int) -> GrowingFile:
        """The file of a line, numbers from 1."""
        return self._files[self._file_of[number - 1]]

    def in_their_words(self, error: ConfigError) -> ConfigError:
        """The same error with the places and the names of fields that the log has."""
        return ConfigError([Problem(self._field(problem.field), problem.message) for problem in error.problems])

    def _field(self, field: str) -> str:
        match = re.fullmatch(r"line (\d+)(?:, ([A-Za-z_]+)(.*))?", field, re.DOTALL)
        if match is None:
            return field
        return self.of(int(match[1]), self._form.names.get(match[2], match[2]) + match[3] if match[2] else "")


def spool(translation: Translation, file: BinaryIO, done: Callable[[int], None]) -> Places:
    """Write all lines of a log to ``file``.

    Raises ConfigError for the first record that cannot be read, and for the first with which the log is too large: a packed file of a few
    kilobytes can hold gigabytes. Raises OSError for a full disk.
    """
    places: Places | None = None
    size, of_steps = 0, dict[str, int]()
    for number, line in enumerate(translation.lines(done=done), start=1):
        if line.fields is None:
            raise ConfigError([Problem(line.file.place(line.number), line.problem)])
        if places is None:
            assert translation.form is not None
            places = Places(translation.form)
        places.add(line)
        written = encoded(line)
        step = str(line.fields.get("step"))[:20]
        size, of_steps[step] = size + len(written), of_steps.get(step, 0) + len(written)
        for most, value, what in (
            (MOST_LINE_BYTES, len(written), S_("bytes in one record")),
            (MOST_STEP_BYTES, of_steps[step], S_(f"bytes in step {step}")),
            (MOST_FILE_BYTES, size, S_("bytes in all")),
            (MOST_LINES, number, S_("records in all")),
        ):
            if value > most:
                raise ConfigError(
                    [Problem(line.file.place(line.number), f"the log is too large here: unpacked, it may have {most:,} {what}")]
                )
        file.write(written)
    if places is None:
        raise ConfigError([Problem("", "the file holds no training step: no response and no metrics")])
    return places


def encoded(line: TranslatedLine) -> bytes:
    """A line as bytes; NaN as Python writes it. Raises ConfigError for a value that is neither text nor number."""
    try:
        return json.dumps(line.fields, separators=(",", ":")).encode("ascii") + b"\n"
    except TypeError as error:
        raise ConfigError([Problem(line.file.place(line.number), f"a value in it is neither a text nor a number ({error})")]) from error
