"""The time to read a text that anyone may send grows with the text's length, not with the square of it.

No test compares a clock with a limit. Each compares the work of one reader on a long text with its work on a short one. For sixteen times
the text the work is sixteen times as much; a search that begins anew at each character needs 256 times as much.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial

import pytest

from rlhf_studio.analysis.logs.shareable import without_secrets
from rlhf_studio.child_process.environment import foreign_environment
from rlhf_studio.ui.access import COOKIE, token_in_cookies, with_our_cookie_only
from rlhf_studio.ui.hosts import host_name
from rlhf_studio.ui.serving.bodies import RequestRefused, read_object

SHORT, TIMES, MOST = 2_000, 16, 80


def passed_on(header: str) -> None:
    with_our_cookie_only({"type": "http", "headers": [(b"cookie", header.encode())]})


READERS: dict[str, tuple[Callable[[str], object], Callable[[int], str]]] = {
    "a body, a text that never ends": (lambda text: read_object(text.encode()), lambda n: '"' + '\\"' * (n // 2)),
    "a body, many escapes": (lambda text: read_object(text.encode()), lambda n: '{"a":"' + "\\\\" * (n // 2)),
    "a body, many quotes": (lambda text: read_object(text.encode()), lambda n: '"' * n),
    "a cookie with escapes": (partial(token_in_cookies, cookie_name=COOKIE), lambda n: f'{COOKIE}="' + "\\\\" * (n // 2) + '"'),
    "a cookie that is passed on": (passed_on, lambda n: f'{COOKIE}="' + "\\\\" * (n // 2) + '"'),
    "many cookies": (partial(token_in_cookies, cookie_name=COOKIE), lambda n: f"{COOKIE}=a;" * (n // len(COOKIE))),
    "a host's name": (host_name, lambda n: "1:" * (n // 2)),
    "a proxy's address": (lambda text: foreign_environment({"HTTP_PROXY": text}), lambda n: "a:" * (n // 2)),
    "secrets in a text": (without_secrets, lambda n: "sk-" * (n // 3) + "!hf_aaaaaaa" * (n // 11)),
}


def work(reader: Callable[[str], object], text: str) -> int:
    """What the reader takes of this thread's processor; the least of some tries."""
    tries = []
    for _ in range(7):
        before = time.thread_time_ns()
        with contextlib.suppress(RequestRefused):
            reader(text)
        tries.append(time.thread_time_ns() - before)
    return max(1, min(tries))


@pytest.mark.parametrize("case", READERS)
def test_no_text_takes_more_work_than_its_length(case: str) -> None:
    reader, text = READERS[case]
    assert work(reader, text(SHORT * TIMES)) < MOST * work(reader, text(SHORT))
