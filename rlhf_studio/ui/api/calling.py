"""How a program's call is answered: its sender's role is looked at once more, it has its turn, and what goes wrong is one sentence.

The role is checked here as well as at the door, because hiding an endpoint protects nothing, and because MCP reaches all functions at one
address.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

import gradio as gr
from starlette.concurrency import run_in_threadpool

from rlhf_studio.child_process.service import Busy
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.api.asked import checked
from rlhf_studio.ui.live.payloads import encode_text
from rlhf_studio.ui.roles import Role, Rule, callable_by, rule_of
from rlhf_studio.ui.serving.bounded import TooBusy, Turns
from rlhf_studio.ui.visiting.modes import Mode

logger = logging.getLogger(__name__)

MOST_BYTES = 64_000  # of a call, whoever sends it
# Gradio's queue has 40 places for events at work. Together these leave some of them, so that nobody keeps an operator out.
AT_ONCE, WAITING = 3, 12  # calls of viewers that run at the same time, beside those of the pages; those that wait for them
STARTS_AT_ONCE, STARTS_WAITING, STARTS_OF_ONE = 2, 6, 3  # of players
WAITS_AT_ONCE = 10  # of viewers in wait_for_run
EXPECTED = (StoreError, ValueError, Busy, TooBusy)
NO_RUN = ("There is no run ", "There is no such run: '")
"""What functions raise with a sentence for people; ConfigError is a ValueError."""
BROKEN = "This could not be answered because of a fault in the app. The app's own log says more."
HOW_TO_ACT = "A program shows the operator's token in the header Authorization: Bearer TOKEN, or X-RLHF-Studio-Token: TOKEN."
Json = dict[str, Any]
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Calls:
    """Who may call, and in what turn. Calls of programs have turns of their own, so that they do not slow the pages down."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._turns, self._waits = Turns(AT_ONCE, WAITING), Turns(WAITS_AT_ONCE, 1)
        self._starts = Turns(STARTS_AT_ONCE, STARTS_WAITING, STARTS_OF_ONE)

    def require(self, request: Any, rule: Rule) -> Role:
        """The sender's role. Raises :class:`gradio.Error` for somebody who may not call a function with this rule."""
        role, mode = self.access.role_of(request), self.access.mode
        plays = not rule.is_for_players(mode) or role >= Role.OPERATOR or self.access.plays(request)
        if role < rule.role_in(mode) or not plays:
            why = self.access.why_not(request) if role > Role.ANYONE else "This came from a page of another website."
            hint = f" {HOW_TO_ACT}" if mode is not Mode.READ_ONLY and role > Role.ANYONE else ""
            raise gr.Error(f"{why}{hint}", title="You are watching", print_exception=False)
        return role

    async def within(self, request: Any, role: Role, rule: Rule, work: Callable[[], Awaitable[Any]], *, waits: bool) -> Any:
        """What the work gives, when it is its turn. Operators do not wait. Raises TooBusy."""
        if role >= Role.OPERATOR:
            return await work()
        turns, whose = (self._starts, self.access.starter(request).key) if rule.starts else (self._waits if waits else self._turns, "")
        async with turns.turn(whose):
            return await work()


def for_programs(role: Role, *, players_in: Iterable[Mode] = (), starts: bool = False, waits: bool = False) -> Callable[[Any], Any]:
    """Makes a method a function for programs; the arguments are those of :class:`~rlhf_studio.ui.roles.Rule`.

    The method's first parameter is the request; it gives plain data, and the program gets it as JSON text. Its object has ``calls``, a
    :class:`Calls`. One that is not ``async`` runs in a thread. ``waits``: it waits for a run, and needs nothing while it does.
    """

    def declare(function: FunctionT) -> Any:
        @wraps(function)
        async def answer(self: Any, request: Any, *values: Any) -> str:
            rule = rule_of(answer)
            calling = self.calls.require(request, rule)
            try:
                arguments = checked(function, values)

                async def work() -> Any:
                    if inspect.iscoroutinefunction(function):
                        return await function(self, request, *arguments)
                    return await run_in_threadpool(function, self, request, *arguments)

                return encode_text(await self.calls.within(request, calling, rule, work, waits=waits)).decode()
            except gr.Error:
                raise
            except EXPECTED as error:
                hint = " A run is named by its id, which list_runs gives." if str(error).startswith(NO_RUN) else ""
                raise gr.Error(f"{error}{hint}", title="Not done", print_exception=False) from error
            except Exception as error:
                logger.exception("%s failed for a program", function.__name__)
                raise gr.Error(BROKEN, print_exception=False) from error

        signature = inspect.signature(function).replace(return_annotation=str)
        answer.__signature__ = signature  # type: ignore[attr-defined]  # what Gradio makes the schema from
        return callable_by(role, players_in=players_in, starts=starts, most_bytes=MOST_BYTES)(answer)

    return declare
