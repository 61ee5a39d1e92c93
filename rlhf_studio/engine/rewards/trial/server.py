"""A process that scores texts for the app: one JSON line with settings and a text in; lines with progress, then one with scores, out."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from typing import Any, TextIO

import transformers

from rlhf_studio.config import Permissions
from rlhf_studio.config_io import ConfigError, parse_ppo
from rlhf_studio.engine.rewards.trial.one_text import Text, Trial

BAD_REQUEST = "the request is not one of ours; reload the page"


def serve(permissions: Permissions) -> int:
    """Answer until standard input closes, which also ends a scoring that is under way: the app is gone then."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # from here on, what libraries print goes to the error stream and cannot be taken for an answer
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin, requests), daemon=True).start()

    def send(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    transformers.utils.logging.disable_progress_bar()
    trial = Trial(permissions, lambda text, fraction: send({"progress": text, "fraction": fraction}))
    while True:
        send(answer(trial, requests.get()))


def answer(trial: Trial, line: str) -> dict[str, Any]:
    """``{"result"}``, or ``{"error"}`` when nothing could be scored at all."""
    try:
        request = json.loads(line)
        config = parse_ppo(request["config"])
        text = Text(request["prompt"], request["response"], request["reference"], request["stopped"])
    except (ValueError, KeyError, TypeError) as error:
        return {"error": str(error) if isinstance(error, ConfigError) else BAD_REQUEST}
    try:
        return {"result": trial.score(config, text)}
    except ConfigError as error:
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001 - the last line of defence: the page must be told, and the next text be scored
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def _read(lines: TextIO, requests: queue.SimpleQueue[str]) -> None:
    for line in lines:
        requests.put(line)
    os._exit(0)
