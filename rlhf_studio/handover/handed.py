"""What a reward file does with its rules once it is handed over: one response in, its score and the parts of it out.

This file is copied into the reward file, so it uses Python's own library alone (and, where a rule counts tokens, transformers).
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO


class HandedReward:
    """The weighted sum of some rules, shaped as the run's settings say.

    Args:
        parts: (name, weight, what it takes, rule) of each component. ``text``: the response and its number of tokens. ``pair``: the
            response and the reference. ``function``: a batch of one: prompts, responses, and what else is known.
        shape: ``score_clip``, ``length_penalty``, ``missing_eos_penalty`` and ``missing_eos_mode``.
        tokenizer: folder or hub id of the policy's tokenizer, which counts tokens; empty where nothing counts them.
        ends: the texts of the tokens that end a response.
        most: the most tokens that a response can have.
    """

    def __init__(
        self, parts: Sequence[tuple[str, float, str, Callable[..., Any]]], shape: dict[str, Any], tokenizer: str, ends: list[str], most: int
    ):
        self._parts, self._shape, self._ends, self._most = list(parts), shape, ends, most
        self._tokenizer_name = tokenizer
        self._tokenizer: Any = None
        self._lock = threading.Lock()

    def score(self, prompt: str, response: str, reference: str, *, stopped: bool | None = None) -> dict[str, float]:
        """``score``, and under its name the weighted score of each component. ``stopped`` None: nobody knows; then nothing is taken off."""
        tokens = self.length(response, stopped)
        known: dict[str, Any] = {"lengths": [tokens]}  # what a function of one's own may name
        known |= ({"references": [reference]} if reference else {}) | ({} if stopped is None else {"stopped": [stopped]})
        request = {"prompts": [prompt], "responses": [response], "extra": known}
        parts = [(name, weight * self._part(kind, rule, response, reference, tokens, request)) for name, weight, kind, rule in self._parts]
        return {"score": self._shaped(sum(value for _, value in parts), tokens, stopped), **dict(parts)}

    def without_end(self, response: str) -> tuple[str, bool]:
        """The response without the token that ends it, and whether it has one. Other special tokens stay."""
        for end in sorted(self._ends, key=len, reverse=True):
            if response.endswith(end):
                return response[: -len(end)], True
        return response, False

    def _part(self, kind: str, rule: Callable[..., Any], response: str, reference: str, tokens: int, request: dict[str, Any]) -> float:
        if kind == "text":
            return float(rule(response, tokens))
        if kind == "pair":
            return float(rule(response, reference))
        (value,) = rule(request)
        return float(sum(value)) if isinstance(value, list) else float(value)

    def _shaped(self, score: float, tokens: int, stopped: bool | None) -> float:
        clip, penalty = self._shape["score_clip"], self._shape["missing_eos_penalty"]
        score = max(-clip, min(clip, score)) if clip else score
        score -= self._shape["length_penalty"] * tokens
        if penalty and stopped is False:
            return float(-penalty) if self._shape["missing_eos_mode"] == "replace" else float(score - penalty)
        return float(score)

    def length(self, response: str, stopped: bool | None) -> int:
        """Tokens of the response, the end token included: it is encoded anew, and may have had more tokens when it was drawn."""
        if not self._tokenizer_name:
            return 0
        with self._lock:
            if self._tokenizer is None:
                from transformers import AutoTokenizer

                self._tokenizer = AutoTokenizer.from_pretrained(self._tokenizer_name)
            count = len(self._tokenizer(response, add_special_tokens=False)["input_ids"])
        return min(self._most, count + (stopped is not False))


class RolloutFile:
    """Responses with their rewards as JSON Lines, for ``open-log``. All processes of one machine append to the same file.

    The step is counted, by the lines that there are: the responses of a step are drawn before those of the next. A last line that was
    cut off when its process was killed is taken away.
    """

    def __init__(self, path: Path, responses_per_step: int):
        self._path, self._per_step, self._works = path, responses_per_step, True
        self._lines, self._bytes = 0, 0  # those of the file that this process has counted

    def write(self, prompt: str, response: str, length: int, scores: dict[str, float], stopped: bool) -> None:
        """Append a line. What goes wrong is told once; it never stops the training."""
        if not self._works:
            return
        try:
            self._append(prompt, response, length, scores, stopped)
        except OSError as error:
            self._works = False
            warnings.warn(f"responses are no longer recorded: {error}", stacklevel=2)

    def _append(self, prompt: str, response: str, length: int, scores: dict[str, float], stopped: bool) -> None:
        parts = {name: value for name, value in scores.items() if name != "score"}
        line = {
            "prompt": prompt,
            "response": response,
            "length": length,
            "reward": scores["score"],
            "components": parts,
            "stopped": stopped,
        }
        import fcntl  # here, as Windows has none: the engines that a run is handed to do not work there either

        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._count(file)
            file.write(json.dumps({"step": 1 + self._lines // self._per_step, **line}).encode() + b"\n")

    def _count(self, file: BinaryIO) -> None:
        """Count the lines that all processes have added since the last time, and leave the file at the end of a line."""
        if file.seek(0, os.SEEK_END) < self._bytes:  # another file, or a shorter one
            self._lines, self._bytes = 0, 0
        file.seek(self._bytes)
        for line in file:
            if not line.endswith(b"\n"):
                file.truncate(self._bytes)
                break
            self._lines, self._bytes = self._lines + 1, self._bytes + len(line)


def function_in(path: Path, name: str) -> Callable[..., Any]:
    """A function of a file that lies beside the reward file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as an import does: dataclasses look there
    spec.loader.exec_module(module)
    function: Callable[..., Any] = getattr(module, name)
    return function
