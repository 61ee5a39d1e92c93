"""A chat model that grades each response by a rubric, behind an OpenAI-compatible server."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from rlhf_studio.config import JudgeReward, Permissions
from rlhf_studio.engine.rewards.episodes import Answer, Episodes
from rlhf_studio.engine.rewards.errors import ComponentError, quoted
from rlhf_studio.engine.rewards.registry import BuildContext, scorer

MOST_BYTES = 1_000_000  # of one answer
MOST_GRADES = 100_000  # that are remembered; about 20 MB
_PLACEHOLDER = re.compile(r"\{(prompt|response|reference)\}")
_DECORATION = " \t*_\"'`{}"  # around a grade, as in **Score: 7** or {"score": 7}
_NUMBER = r"([-+]?(?:\d+(?:\.\d+)?|\.\d+))(?:\s{0,3}/\s{0,3}([-+]?\d+(?:\.\d+)?))?"  # 7, 7.5 or 7/10
_ONLY_A_NUMBER = re.compile(_NUMBER)
_GRADE_LINE = re.compile(rf"(?:final\s)?score[\s*_\"'`]{{0,8}}[:=][\s*_\"'`]{{0,8}}{_NUMBER}", re.IGNORECASE)


class Judge:
    """Asks for one grade per response, several at a time, and asks the same thing only once."""

    def __init__(self, settings: JudgeReward, permissions: Permissions, field: str, sleep: Callable[[float], object] | None = None):
        """Raises :class:`ConfigError` when no server of that name was given at the start."""
        from rlhf_studio.engine.rewards.outside.http_client import connect  # here, because only runs that ask a server need httpx

        self._settings = settings
        self._client = connect(settings, permissions, field, connections=settings.concurrency, sleep=sleep)
        self._grades: OrderedDict[bytes, float] = OrderedDict()  # by the digest of the question; the longest unused is dropped first

    def __call__(self, episodes: Episodes) -> Answer:
        """The grades. Raises :class:`ComponentError`."""
        questions = self._questions(episodes)
        digests = [hashlib.sha256(question.encode("utf-8", "surrogatepass")).digest() for question in questions]
        known = {digest: self._grades[digest] for digest in digests if digest in self._grades}
        new = {digest: row for row, digest in reversed(list(enumerate(digests))) if digest not in known}  # the first row of each
        if len(new) > self._settings.max_requests:
            raise self._error(f"the batch needs {len(new)} requests, more than max_requests {self._settings.max_requests}")
        known |= self._ask_all(questions, dict(sorted(new.items(), key=lambda item: item[1])))
        self._remember(known)
        return Answer(torch.tensor([known[digest] for digest in digests], dtype=torch.float32))

    def _questions(self, episodes: Episodes) -> list[str]:
        """What the judge is told for each row. All placeholders are filled in one pass, so that none in a text is taken for ours."""
        settings, count = self._settings, len(episodes.responses)
        references = episodes.required_references() if settings.needs_reference() else [""] * count
        ending = (
            f"\n\nEnd your answer with a line of its own that says Score: and then one number from {settings.lowest:g} (the worst) to "
            f"{settings.highest:g} (the best)."
        )
        rows = zip(episodes.prompts, episodes.responses, references, strict=True)
        texts = [{"prompt": prompt, "response": response, "reference": reference} for prompt, response, reference in rows]

        def filled(text: dict[str, str]) -> str:
            return _PLACEHOLDER.sub(lambda match: text[match[1]], settings.rubric) + ending

        return [filled(text) for text in texts]

    def _ask_all(self, questions: list[str], rows: dict[bytes, int]) -> dict[bytes, float]:
        """The grades of these rows. After the first error no request is begun or repeated; grades that arrived are remembered."""
        grades: dict[bytes, float] = {}
        failed: list[tuple[int, ComponentError]] = []
        stop = threading.Event()

        def ask(digest: bytes, row: int) -> None:
            if stop.is_set():
                return
            try:
                grades[digest] = self._ask(questions[row], stop)
            except ComponentError as error:
                failed.append((row, error))
                stop.set()

        with ThreadPoolExecutor(self._settings.concurrency) as pool:
            futures = [pool.submit(ask, digest, row) for digest, row in rows.items()]
        for future in futures:
            future.result()  # raises what is no ComponentError
        if failed:
            self._remember(grades)
            row, error = failed[0]
            raise self._error(str(error), row) from error
        return grades

    def _ask(self, question: str, stop: threading.Event) -> float:
        message = {
            "model": self._settings.model,
            "messages": [{"role": "user", "content": question}],
            "temperature": 0,
            "max_tokens": self._settings.max_tokens,
        }
        text = answer_text(self._client.post(message, MOST_BYTES, stop), self._settings.max_tokens)
        return grade_in(text, self._settings.lowest, self._settings.highest)

    def _remember(self, grades: dict[bytes, float]) -> None:
        for digest, grade in grades.items():
            self._grades[digest] = grade
            self._grades.move_to_end(digest)
        while len(self._grades) > MOST_GRADES:
            self._grades.popitem(last=False)

    def _error(self, cause: str, row: int | None = None) -> ComponentError:
        return ComponentError(f"the judge {self._settings.server}: {cause}", row)


def answer_text(answer: dict[str, Any], max_tokens: int) -> str:
    """What the model wrote, from a chat completion. Raises :class:`ComponentError` when there is none, or when it was cut off."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else None
    if choice.get("finish_reason") == "length":  # "Score: 1" may be the beginning of "Score: 10"
        raise ComponentError(f"its answer was cut off after {max_tokens} tokens; raise max_tokens")
    if not isinstance(text, str) or not text.strip():
        raise ComponentError("its answer is not a chat completion with a text in choices[0].message.content")
    return text


def grade_in(text: str, lowest: float, highest: float) -> float:
    """The grade in a judge's answer: that of its last line ``Score: 7``, or the whole answer when it is a number alone.

    ``7/10`` is 7 when the highest grade is 10. Raises :class:`ComponentError` for anything else: a guess would be a wrong reward.
    """
    lines = [_plain(line) for line in text.splitlines()]
    matches = [match for line in lines if (match := _GRADE_LINE.fullmatch(line))]
    match = matches[-1] if matches else _ONLY_A_NUMBER.fullmatch(_plain(text.strip()))
    if match is None:
        raise ComponentError(f"its answer has no line 'Score: NUMBER': {quoted(text)}")
    grade, of = float(match[1]), match[2]
    if of is not None and float(of) != highest:
        raise ComponentError(f"its grade {grade:g}/{float(of):g} is not on the scale from {lowest:g} to {highest:g}: {quoted(text)}")
    if not lowest <= grade <= highest:
        raise ComponentError(f"its grade {grade:g} is outside the scale from {lowest:g} to {highest:g}: {quoted(text)}")
    return grade


def _plain(line: str) -> str:
    """Without what may stand around a grade, and without a full stop at the end."""
    return line.strip(_DECORATION).rstrip(f".{_DECORATION}")


@scorer(JudgeReward)
def build(settings: JudgeReward, context: BuildContext) -> Judge:
    """Nothing is asked before the first batch."""
    return Judge(settings, context.permissions, context.field)
