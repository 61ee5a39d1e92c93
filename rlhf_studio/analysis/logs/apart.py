"""Opening a log in a process of its own, for the app: nobody has checked the file, and it may be huge.

The child has a limit to its memory. When it is ended on the way, what it had begun is removed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlhf_studio.analysis.logs.open_log import Opened, open_log
from rlhf_studio.analysis.logs.sources import PARQUET
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.inputs.helper import HelperError, answer, ask_helper, read_task
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import clear_unfinished
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import MAX_NAME
from rlhf_studio.visible import visible

MODULE = "rlhf_studio.analysis.logs.apart"
MEMORY_BYTES = 4_000_000_000
PATIENCE = 600.0  # seconds without a sign of life


def _go_on() -> None:
    """Nobody wants to end it."""


def open_log_apart(
    file: Path,
    workspace: Path,
    name: str = "",
    tick: Callable[[], None] = _go_on,
    *,
    called: str = "",
    tokenizer: str = "",
    weights: str = "",
) -> Opened:
    """As :func:`~rlhf_studio.analysis.logs.open_log.open_log`, in a process of its own.

    ``tick`` is called again and again, and may raise to end it.

    Raises ConfigError and StoreError as that does, and StoreError too when the process needs too much memory or does not answer.
    """
    task = {"file": str(Path(file).absolute()), "workspace": str(Path(workspace).absolute()), "name": name}
    task |= {"called": called, "tokenizer": tokenizer, "weights": weights}
    try:
        with closing(ask_helper(MODULE, task, memory_bytes=MEMORY_BYTES, seconds=PATIENCE, network=bool(tokenizer), tick=tick)) as answers:
            for answered in answers:
                if "problems" in answered:
                    raise ConfigError([Problem(field, message) for field, message in answered["problems"]])
                if "error" in answered:
                    raise StoreError(answered["error"], answered["reason"])
                if "opened" in answered:
                    return Opened(**answered["opened"])
                tick()
    except HelperError as error:
        raise StoreError(f"The log {Path(file).name} could not be opened: {error}. Open a smaller part of it.") from error
    finally:
        clear_unfinished(Path(workspace) / paths.RUNS)  # when it was ended on the way
    raise StoreError(f"The log {Path(file).name} could not be opened: the process that read it ended without a word.")


def open_log_sent(
    content: bytes,
    file_name: str,
    workspace: Path,
    name: str = "",
    tick: Callable[[], None] = _go_on,
    *,
    tokenizer: str = "",
    weights: str = "",
) -> Opened:
    """The same for what is in a file, as a page sends it."""
    plain = Path(file_name.replace("\\", "/")).name
    with tempfile.TemporaryDirectory(prefix="rlhf-studio-log-") as folder:
        path = Path(folder) / f"log{PARQUET if plain.lower().endswith(PARQUET) else '.jsonl'}"
        path.write_bytes(content)
        called = plain[:MAX_NAME] or path.name
        title = (name.strip() or visible(Path(plain).stem, lines=False) or "log")[:MAX_NAME]
        try:
            return open_log_apart(path, workspace, title, tick, called=called, tokenizer=tokenizer, weights=weights)
        except ConfigError as error:
            shown = visible(called, lines=False)
            raise ConfigError([Problem(each.field, each.message.replace(str(path), shown)) for each in error.problems]) from error


# --- inside the child --------------------------------------------------------------------------------------------------------------


def main() -> None:
    """Open the log that the task names; say how far it is, and at the end what became of it."""
    task = read_task()
    try:
        file, workspace = Path(task["file"]), Path(task["workspace"])
        given = {name: task[name] for name in ("called", "tokenizer", "weights")}
        opened = open_log(file, workspace, task["name"], _ProgressAnswers(), **given)
    except ConfigError as error:
        answer({"problems": [[problem.field, problem.message] for problem in error.problems]})
    except StoreError as error:
        answer({"error": str(error), "reason": error.reason})
    else:
        answer({"opened": asdict(opened)})


class _ProgressAnswers:
    """Answers with the fraction that is done, once for each percent."""

    def __init__(self) -> None:
        self._last = -1

    def __call__(self, fraction: float) -> None:
        now: Any = int(100 * fraction)
        if now > self._last:
            self._last = now
            answer({"fraction": fraction})


if __name__ == "__main__":
    main()
