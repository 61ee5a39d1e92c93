"""Runs the command line of a checkout, and removes from a text what differs from one run to the next."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import runpy
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

CALM = {
    **{"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONDONTWRITEBYTECODE": "1"},
    **{"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "100", "TZ": "UTC", "NO_COLOR": "1"},
    **{"PYTHONHASHSEED": "0", "GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1", "MPLBACKEND": "Agg"},
}
LONG = 400  # characters of a line
NOT_OURS = ("SPACE_ID", "SYSTEM", "SPACE_HOST", "GRADIO_SERVER_NAME", "RLHF_STUDIO_TOKEN", "RLHF_STUDIO_WORKSPACE", "HF_TOKEN", "CI")

_VOLATILE_TEXT = (
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?"), "{time}"),
    (re.compile(r"\b\d{8}-\d{6}(-[0-9a-z]+)*"), "{id}"),
    (re.compile(r"\b(127\.0\.0\.1|localhost|0\.0\.0\.0):\d+"), r"\1:{port}"),
    (re.compile(r"\bpid \d+|\bprocess \d+\b"), "{pid}"),
    (
        re.compile(r"(?<![\w.])\d+(\.\d+)? ?(ms|s|min|h|seconds?|minutes?|hours?|days?|weeks?|months?|years?)( \d+ ?(s|min))?\b(?! steps)"),
        "{span}",
    ),
    (re.compile(r"\b\d+(\.\d+)? tokens/s"), "{speed}"),
    (re.compile(r"\b[\d,]+(\.\d+)? (kB|MB|GB|MiB|GiB)\b"), "{size}"),
)
_VOLATILE_KEY = re.compile(
    r"(time|speed|memory)/.*|.*(seconds|_at|_time|duration|elapsed|_eta|_age|pid|nonce|uptime|mtime|inode|created|updated|started|ended)$"
    r"|at|eta|age|peak|time|now|when|version|versions|host|hostname|machine|hardware|boot|port|seq|sizes?|bytes|free|app_id|command|fingerprint"
)


@dataclass
class Checkout:
    """A checkout of the program and a folder to work in.

    Attributes:
        names: what is written in the place of a text that is another one each time, such as a folder.
    """

    root: Path
    work: Path
    names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        version = self.run("--version")[1].strip().split()[-1]
        for path, name in ((self.work, "{work}"), (self.root, "{checkout}")):
            self.names |= {str(path): name, quote(str(path), safe=""): name}
        self.names[version] = "{version}"

    def environment(self, **more: str) -> dict[str, str]:
        """For processes of this checkout: one thread, no network, and its modules instead of ours."""
        inherited = {key: value for key, value in os.environ.items() if key not in NOT_OURS}
        return {**inherited, **CALM, "PYTHONPATH": str(self.root), "HOME": str(self.work / "home"), **more}

    def run(self, *arguments: str, patience: int = 300, **more: str) -> tuple[int, str, str]:
        """(exit code, output, errors) of ``python -m rlhf_studio``, in a fork of this process: PyTorch is imported only once."""
        import torch  # noqa: F401
        import transformers  # noqa: F401

        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.alarm(patience)
                self._become(output.fileno(), errors.fileno(), arguments, more)
            _, status = os.waitpid(child, 0)
            for file in (output, errors):
                file.seek(0)
            return os.waitstatus_to_exitcode(status), output.read().decode(), errors.read().decode()

    def run_well(self, *arguments: str, **more: str) -> str:
        """The output of a command that has to succeed. Raises RuntimeError where it does not."""
        code, output, errors = self.run(*arguments, **more)
        if code:
            raise RuntimeError(f"{' '.join(arguments)} ended with {code}:\n{output}{errors}")
        return output

    def _become(self, output: int, errors: int, arguments: tuple[str, ...], more: dict[str, str]) -> None:
        """``python -m rlhf_studio`` in this process, which is a new one; never returns."""
        code = 1
        try:
            for number, target in enumerate((os.open(os.devnull, os.O_RDONLY), output, errors)):
                os.dup2(target, number)
            environment = self.environment(**more)
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(self.work)
            ours = str(Path(__file__).parents[2])
            sys.path[:] = [str(self.root), *(path for path in sys.path if path not in ("", ours, os.curdir))]
            sys.argv = ["rlhf_studio", *arguments]
            runpy.run_module("rlhf_studio", run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except Exception:
            logging.exception("this came out of the program")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def tidy(self, text: str) -> str:
        """The text without what differs from one time to the next."""
        for name in sorted(self.names, key=len, reverse=True):
            text = text.replace(name, self.names[name])
        for pattern, instead in _VOLATILE_TEXT:
            text = pattern.sub(instead, text)
        return text

    def tidy_values(self, value: Any) -> Any:
        """The same for values out of JSON."""
        if isinstance(value, dict):
            pairs = ((self.tidy(key), inner, _VOLATILE_KEY.fullmatch(key)) for key, inner in sorted(value.items()))
            return {key: "{volatile}" if volatile and isinstance(inner, str | int | float) else self.tidy_values(inner)
                    for key, inner, volatile in pairs if not (volatile and "/" in key)}  # fmt: skip
        if isinstance(value, list):
            return [self.tidy_values(inner) for inner in value]
        return self.tidy(value) if isinstance(value, str) else value


def shortened(line: str) -> str:
    """Of a long line its beginning, with a sum of the whole."""
    return line if len(line) <= LONG else f"{line[:LONG]}... {hashlib.sha256(line.encode()).hexdigest()[:16]}"


def write(path: Path, value: Any) -> None:
    """A text as it is, everything else as JSON with sorted keys."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        value if isinstance(value, str) else json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )
