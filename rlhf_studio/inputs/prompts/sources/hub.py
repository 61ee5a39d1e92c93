"""Rows of a Hugging Face dataset, or of a folder with the same structure, streamed: only the rows that are asked for are fetched.

Runs in a helper process: see :mod:`rlhf_studio.inputs.prompts.sources.tables`. No code of a dataset is ever run: the library refuses
datasets that are a script, and of its own readers only those for tables are allowed here.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from rlhf_studio.child_process.loading import libraries_stay
from rlhf_studio.inputs.error_text import first_line
from rlhf_studio.inputs.models.files import network_error
from rlhf_studio.inputs.prompts.errors import SOURCE, PromptsError
from rlhf_studio.inputs.prompts.sources.lines import check_first_rows, named_cells, too_long
from rlhf_studio.inputs.prompts.sources.parquet import read_parquet
from rlhf_studio.inputs.prompts.sources.rows import MAX_ROW_CHARACTERS, MOST_COLUMNS, RawRow, RowSource, size_of
from rlhf_studio.language import S_

READERS = ("csv", "json", "parquet", "arrow", "text", "cache")
TIMEOUT_SECONDS = 10.0


def open_hub(name: str, subset: str, split: str, revision: str, columns: dict[str, str], usual: tuple[str, ...] = ()) -> RowSource:
    """The rows of ``name``: a folder on this machine, or a dataset id. Raises :class:`PromptsError`, also while rows are drawn.

    Without a connection, the copy that the library has stored on this machine is read, when there is one.
    """
    is_folder = os.path.isdir(name)
    if is_folder:
        check_first_rows(Path(name), (*columns.values(), *usual))
    commit, unreachable = (None, None) if is_folder else _commit(name, revision)
    with libraries_stay():
        import datasets  # heavy, so only when the dataset is known to exist

    if unreachable:
        datasets.config.HF_HUB_OFFLINE = True  # or the library would try for half a minute
    try:
        builder = datasets.load_dataset_builder(name, subset or None, revision=commit)
        if builder.name not in READERS:
            raise PromptsError(SOURCE, f"{name} holds files of the kind {builder.name}, not tables of text")
        stream = builder.as_streaming_dataset(split=split)
    except PromptsError:
        raise
    except MemoryError:
        raise PromptsError(SOURCE, f"{name} cannot be opened: a row or a packed file in it needs too much memory") from None
    except Exception as error:  # noqa: BLE001 - the library raises ValueError, RuntimeError and its own kinds; each becomes one sentence
        if unreachable and not isinstance(error, ValueError):  # a ValueError is about a subset or split of the stored copy
            raise unreachable from None
        raise _explained(name, subset, split, error) from None
    names: list[str] = []
    if builder.name == "parquet":
        rows = _parquet_rows([str(file) for file in builder.config.data_files[split]], columns, usual, names)
    else:
        rows = _rows(iter(stream), columns, usual, names)
    return RowSource(_explaining(rows, name), names, _origin(name, commit, unreachable is not None))


def _parquet_rows(files: list[str], columns: dict[str, str], usual: tuple[str, ...], names: list[str]) -> Generator[RawRow, None, None]:
    """A few rows of the requested columns at a time. The library itself would unpack a whole group of rows, with every column."""
    from datasets.utils.file_utils import xopen  # files on the hub open as those on this machine do

    before = 0
    for file in files:
        with xopen(file, "rb") as opened:
            source = read_parquet(opened, file.rsplit("/", 1)[-1], columns, usual, before)
            if not names:
                names.extend(source.columns)
            for row in source.rows:
                before = row.number
                yield row


def _origin(name: str, commit: str | None, stored: bool) -> list[str]:
    if stored:
        return [S_(f"The Hugging Face hub cannot be reached: {name} is read from the copy on this machine, whichever revision that is.")]
    return [S_(f"{name} is read at commit {commit[:12]}.")] if commit else []


def _commit(name: str, revision: str) -> tuple[str | None, PromptsError | None]:
    """(commit behind a revision, None), or (None, the error to give) when the hub cannot be reached.

    Asks the hub once, so that a missing dataset or network is known within seconds.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        info = HfApi().dataset_info(name, revision=revision, timeout=TIMEOUT_SECONDS)
        if info.gated:
            HfApi().auth_check(name, repo_type="dataset")
        return info.sha or revision, None
    except GatedRepoError:
        raise PromptsError(SOURCE, f"{name} is gated: accept its terms on its hub page, then set HF_TOKEN and start again") from None
    except RepositoryNotFoundError:
        message = S_(f"there is no file or folder {name}, and no such dataset on the Hugging Face hub; if it is private, set HF_TOKEN")
        raise PromptsError(SOURCE, message) from None
    except RevisionNotFoundError:
        raise PromptsError("data.revision", f"{name} has no revision {revision}; use main, a branch, a tag or a commit") from None
    except HFValidationError:
        raise PromptsError(SOURCE, f"there is no file {name}, and it is no dataset id") from None
    except (HfHubHTTPError, OfflineModeIsEnabled, OSError, network_error()) as error:
        message = S_(f"{name} is not on this machine, and the Hugging Face hub cannot be reached ({first_line(error)})")
        return None, PromptsError(SOURCE, message)


def _rows(
    stream: Iterator[dict[str, Any]], columns: dict[str, str], usual: tuple[str, ...], names: list[str]
) -> Generator[RawRow, None, None]:
    for number, row in enumerate(stream, start=1):
        cells = named_cells(row, number, columns, names)
        names.extend([key for key in row if key not in names][: MOST_COLUMNS - len(names)])
        yield RawRow(number, [*cells, *(row.get(column) for column in usual)])


def _explaining(rows: Iterator[RawRow], name: str) -> Generator[RawRow, None, None]:
    """The rows; a row that is too long, and every problem on the way, becomes a :class:`PromptsError`."""
    number = 0
    try:
        for row in rows:
            number = row.number
            if any(size_of(cell) > MAX_ROW_CHARACTERS for cell in row.cells):
                raise too_long(number)
            yield row
    except PromptsError:
        raise
    except MemoryError:
        raise PromptsError(SOURCE, f"the rows of {name} after {number:,} need too much memory") from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        message = S_(f"the rows of {name} after {number:,} are not UTF-8 text (byte 0x{byte:02x}); save the file as UTF-8")
        raise PromptsError(SOURCE, message) from None
    except Exception as error:  # noqa: BLE001 - network, storage and parser errors of many libraries; each becomes one sentence
        raise PromptsError(SOURCE, f"the rows of {name} after {number:,} cannot be read ({first_line(error)})") from None


def _explained(name: str, subset: str, split: str, error: Exception) -> PromptsError:
    """The library's error as a setting and a sentence."""
    text = str(error)
    if "no longer supported" in text:
        message = S_(f"{name} is a Python script, which is never run here; use a copy of it that holds Parquet files")
        return PromptsError(SOURCE, message)
    if "Config name is missing" in text:
        return PromptsError("data.subset", f"{name} has several subsets; choose one of: {_choices(text)}")
    if "BuilderConfig" in text:
        return PromptsError("data.subset", f"{name} has no subset {subset!r}; there are: {_choices(text)}")
    if "Bad split" in text or "Unknown split" in text:
        return PromptsError("data.split", f"{name} has no split {split!r}; there are: {_choices(text)}")
    if "gated" in text:
        return PromptsError(SOURCE, f"{name} is gated: accept its terms on its hub page, then set HF_TOKEN and start again")
    if isinstance(error, ConnectionError):
        return PromptsError(SOURCE, f"the Hugging Face hub cannot be reached for {name} ({first_line(error)})")
    if isinstance(error, FileNotFoundError):
        return PromptsError(SOURCE, f"{name} holds no tables that can be read (Parquet, JSON Lines, CSV, Arrow or text files)")
    return PromptsError(SOURCE, f"{name} cannot be opened ({first_line(error)})")


def _choices(text: str) -> str:
    """The names that the library lists in its message, at most twenty."""
    _, opening, listed = text.split("Example of usage")[0].rpartition("[")
    inside, closing, _ = listed.partition("]")
    try:
        names = [str(name) for name in ast.literal_eval(f"[{inside}]")] if opening and closing else []
    except (ValueError, SyntaxError):
        names = []
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else S_("none that can be listed")
