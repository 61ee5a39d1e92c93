"""Who sends a request: its :class:`~rlhf_studio.ui.roles.Role`. Everyone who reaches the page may watch; whoever has opened the rating
link may also vote; operators may also start, stop and delete.

What each role may call is in :mod:`rlhf_studio.ui.roles`, and :mod:`rlhf_studio.ui.door` holds everyone to it before Gradio sees
a request. The methods that change something call :meth:`Access.require_operator` as well, for callers that do not come by HTTP.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import gradio as gr
from starlette.types import Scope

from rlhf_studio.language import _
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.visitors.limits import Admission
from rlhf_studio.runs.visitors.starters import Starter
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.classroom.room import Classroom
from rlhf_studio.ui.hosts import Hosts, host_name, is_loopback
from rlhf_studio.ui.roles import Role
from rlhf_studio.ui.sent import only_watches, run_id
from rlhf_studio.ui.visiting import identity, owner
from rlhf_studio.ui.visiting.allowed import Budget
from rlhf_studio.ui.visiting.modes import Mode, on_a_space
from rlhf_studio.ui.visiting.tokens import is_token, token_in_cookies

COOKIE = "rlhf_studio_operator"
HEADER = "x-rlhf-studio-token"
QUERY = "operator"  # not "token": the Live page keeps the chosen token of a response under that name
RATER_COOKIE = "rlhf_studio_rater"
RATER_HEADER = "x-rlhf-studio-rating-token"
RATER_QUERY = "rate"
CLASS_COOKIE = "rlhf_studio_class"
CLASS_HEADER = "x-rlhf-studio-class-token"
CLASS_QUERY = "class"
OUR_COOKIES = (COOKIE, RATER_COOKIE, CLASS_COOKIE, identity.COOKIE)
LINK_SECONDS = 1.0  # during which a link that another app has renewed may still count as valid
TOKEN_VARIABLE = "RLHF_STUDIO_TOKEN"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,200}")
_OF_PROXIES = re.compile(r"forwarded|x-forwarded-.*|via|x-real-ip|.*-(client|connecting)-ip")


SENDER = "rlhf_studio.sender"  # the key under which a request keeps its sender


@dataclass(frozen=True)
class Sender:
    """Who sends a request: the role, and whether it is a visitor of a Space or a student of a class."""

    role: Role
    plays: bool = False


class Raters:
    """The rating link: whoever opens it may vote, and may do nothing else.

    Args:
        known: gives the link's token; empty until somebody has made one.
        make: makes a token, or with ``renew`` another one.
        now: gives the time in seconds.
    """

    def __init__(
        self,
        known: Callable[[], str] = lambda: "",
        make: Callable[..., str] = lambda renew: "",
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known, self._make, self._now = known, make, now
        self._token, self._read_at = "", -LINK_SECONDS

    def make(self, *, renew: bool = False) -> str:
        """The link's token, made when there is none yet."""
        self._token, self._read_at = self._make(renew=renew), self._now()
        return self._token

    def admits(self, token: str) -> bool:
        """Whether this is the rating link's token. Another app of the same workspace may have made or renewed the link. So the store is
        read again after a second, and at once when the token is not the known one."""
        if not token:
            return False
        if self._now() - self._read_at >= LINK_SECONDS or not self._is_known(token):
            self._look_up()
        return self._is_known(token)

    def _is_known(self, token: str) -> bool:
        return is_token(token, self._token)

    def _look_up(self) -> None:
        """Read the token from the store. When the store cannot be read now, the known token stays valid; the answer to the vote says what
        is wrong with the store."""
        with contextlib.suppress(StoreError):
            self._token, self._read_at = self._known(), self._now()


@dataclass(frozen=True)
class Access:
    """The rules of one running app.

    Attributes:
        mode: how the app is used; in a read-only one nobody may change anything.
        loopback: the server listens on this machine only; whoever sits at it is an operator.
        token: what makes anyone else an operator, sent as cookie or header; empty admits nobody.
        token_only: a person set the token: whoever sits at the machine shows it too. Several people may work on it, and a proxy
            that adds no header looks like one of them.
        hosts: what the app is called.
        raters: who may vote without being an operator.
        room: what a class shares: its link, another one than the raters', and whether students may start runs now.
        visitors: who has been given a visitor's or student's cookie.
        budget: what visitors and students may start.
        owners: the names of those who own the Space, in lower case, where they can log in.
        path: for which the app's cookies are valid; another one than ``/`` where a proxy serves it below one.
        duplicate: where people make a copy of the Space; empty elsewhere.
        address: the Space's own, outside the frame of huggingface.co; empty elsewhere.
    """

    mode: Mode = Mode.LOCAL
    loopback: bool = True
    token: str = field(default="", repr=False)
    token_only: bool = False
    hosts: Hosts = Hosts()
    raters: Raters = field(default_factory=Raters)
    room: Classroom = field(default_factory=Classroom)
    visitors: identity.Visitors = field(default_factory=identity.Visitors)
    budget: Budget = field(default_factory=Budget)
    owners: frozenset[str] = frozenset()
    path: str = "/"
    duplicate: str = ""
    address: str = ""

    @property
    def operator_token(self) -> str:
        """What makes somebody an operator now: a teacher may have replaced the token with which the app was started."""
        return self.room.teachers_token or self.token

    @property
    def read_only(self) -> bool:
        """Whether nobody may change anything."""
        return self.mode is Mode.READ_ONLY

    def role_of(self, request: Any, data: Any = None) -> Role:
        """Who sends this request. A page of another website may not even watch. Arguments as :meth:`is_operator`."""
        role = self._sender(request).role
        return min(role, Role.VIEWER) if only_watches(data) else role

    def plays(self, request: Any, data: Any = None) -> bool:
        """Whether this is a visitor of a Space or a student of a class: they may start small runs of their own, where :meth:`may_start`."""
        return self._sender(request).plays and not only_watches(data)

    def shows_class_link(self, request: Any) -> bool:
        """Whether the sender has opened the class link that is valid now. To take part they also need a place (:meth:`plays`)."""
        return request is not None and self.room.admits(_token_of(request, CLASS_HEADER, CLASS_COOKIE))

    def may_start(self, request: Any, data: Any = None) -> bool:
        """Whether this is an operator, or somebody who plays and may start a run now."""
        allowed = self.mode is not Mode.CLASSROOM or self.room.students_start_runs
        return self.is_operator(request, data) or (allowed and self.plays(request, data))

    def starter(self, request: Any, data: Any = None) -> Starter:
        """Who starts a run with this request, as it is recorded with the run."""
        if self.is_operator(request, data):
            return Starter("operator" if self.mode.visitors_play else "")
        starter = identity.starter_of(self.mode, self.visitors.key_in(request.headers), request)
        return replace(starter, name=self.room.name_of(starter.key))

    def admission(self, request: Any, data: Any = None) -> Admission:
        """Who starts or resumes a run with this request, and what they may have. Raises :class:`gradio.Error` for whoever may not start."""
        if not self.may_start(request, data):
            self.require_operator(request, data)
        if self.is_operator(request, data):
            return Admission(self.starter(request, data))
        return Admission(self.starter(request, data), self.budget.limits, partial(self._still_starter, request, data))

    def _still_starter(self, request: Any, data: Any) -> Starter:
        """Who starts a run with this request, as things are now. Raises StoreError for whoever may not start any more."""
        _scope_of(request).pop(SENDER, None)
        if not self.may_start(request, data):
            raise StoreError(self.why_not(request, data), "limit")
        return self.starter(request, data)

    def owns(self, request: Any, data: Any, starter: Starter) -> bool:
        """Whether the sender is the visitor or student who started something."""
        return starter.plays and self.plays(request, data) and self.starter(request, data).key == starter.key

    def own_starter(self, request: Any, data: Any, workspace: Workspace) -> Starter | None:
        """Who started the run that ``data`` names, where that is the sender; else None. Raises StoreError for a run that is not there."""
        if not self.plays(request, data):
            return None
        starter = workspace.status(run_id(data)).starter
        return starter if self.owns(request, data, starter) else None

    def is_operator(self, request: Any, data: Any = None) -> bool:
        """Whether the sender of this request (Gradio's or Starlette's) may change things.

        ``data`` is what the page sent with its question. A page that was opened with ``?view=1`` is a viewer's, whoever opened it:
        the request for the page shows that in its address, and later ones in what they send.
        """
        return self.role_of(request, data) >= Role.OPERATOR

    def _sender(self, request: Any) -> Sender:
        """Who sends a request. It is decided once, and kept with the request."""
        if request is None or not self._from_our_page(request.headers):
            return Sender(Role.ANYONE)
        request_scope = _scope_of(request)
        if SENDER not in request_scope:
            plays = self._may_play(request)
            rates = not self.read_only and self.raters.admits(_token_of(request, RATER_HEADER, RATER_COOKIE))
            role = Role.OPERATOR if self._may_operate(request) else Role.PLAYER if plays or rates else Role.VIEWER
            request_scope[SENDER] = Sender(role, plays)
        sender: Sender = request_scope[SENDER]
        return sender

    def _may_play(self, request: Any) -> bool:
        if self.mode is Mode.CLASSROOM:
            return self.shows_class_link(request) and self.room.students.has_place(self.visitors.key_in(request.headers))
        return self.mode is Mode.SPACE

    def _may_operate(self, request: Any) -> bool:
        if self.read_only or dict(getattr(request, "query_params", None) or {}).get("view") == "1":
            return False
        if is_token(_token_of(request, HEADER, COOKIE), self.operator_token) or is_token(_bearer(request), self.operator_token):
            return True
        if self.mode is Mode.SPACE and self.person(request).lower() in self.owners:
            return True
        return self.loopback and not self.token_only and _from_this_machine(request)

    def person(self, request: Any) -> str:
        """The name under which the sender has logged in at Hugging Face; empty for most."""
        return owner.person_in(_scope_of(request).get("session", {}))

    def _from_our_page(self, headers: Any) -> bool:
        """False for a request that another website made a browser send. Programs that are no browsers send neither header."""
        site = headers.get("sec-fetch-site")
        if site is not None:
            return site in ("same-origin", "none")
        origin = headers.get("origin")
        if origin is None:
            return True
        _, _, page = origin.partition("://")
        hosts = {headers.get("host", ""), headers.get("x-forwarded-host", "").split(",")[0].strip(), *self.hosts.given}
        return page.lower() in {host.lower() for host in hosts} - {""}

    def require_operator(self, request: Any, data: Any = None) -> None:
        """Raises :class:`gradio.Error`, which the page shows, when the sender may only watch. Arguments as :meth:`is_operator`."""
        if not self.is_operator(request, data):
            raise gr.Error(self.why_not(request, data), title=_("You are watching"), print_exception=False)

    def rights(self, request: Any, data: Any = None) -> dict[str, Any]:
        """Members of a page's answer: ``operator``, whether this is one, and ``why_not``, which is empty for an operator."""
        operator = self.is_operator(request, data)
        return {"operator": operator, "why_not": "" if operator else self.why_not(request, data)}

    def why_not_rate(self) -> str:
        """One sentence for somebody who may not vote."""
        if self.read_only:
            return _("This app was started read-only: nobody can vote.")
        if self.mode is Mode.CLASSROOM:
            return _("The class link lets you answer and vote. There may be a new one: ask your teacher for it, and open it.")
        return _("You can watch, not vote. The rating link lets you vote: ask whoever runs this app for it.")

    def why_no_place(self, request: Any) -> str:
        """One or two sentences for somebody who has opened the class link and may not take part; empty for everyone else."""
        if self.mode is not Mode.CLASSROOM or not self.shows_class_link(request):
            return ""
        key, students = self.visitors.key_in(request.headers), self.room.students
        if students.has_place(key):
            return ""
        if key and (students.is_late(key) or students.full):
            only_place = students.places == 1
            taken = (
                _("The one place of this class is taken.")
                if only_place
                else _("All {places} places of this class are taken.").format(places=students.places)
            )
            return _("{taken} Your teacher can make room for you: say that you are here.").format(taken=taken)
        return _("Open the class link again, in a browser that keeps cookies: your place in the class is kept in one.")

    def why_not(self, request: Any, data: Any = None) -> str:
        """Sentences for somebody who is no operator: why not, and what would change it. Arguments as :meth:`is_operator`."""
        if self.read_only:
            return _("This app was started read-only: runs can be watched, not changed.")
        if self.mode is Mode.SPACE:
            return _("You can watch all runs, and start, steer and stop small runs of your own. For more, duplicate this Space.")
        if self.mode is Mode.CLASSROOM and self.plays(request, data):
            own = _("start small runs of your own") if self.room.students_start_runs else _("answer what your teacher asks")
            return _("The class link lets you watch all runs, and {own}. All else is for the teacher.").format(own=own)
        if self.mode is Mode.CLASSROOM and self.shows_class_link(request):
            return self.why_no_place(request)
        if self.mode is Mode.CLASSROOM:
            return _(
                "Students open the class link: then they can answer and start small runs. All else is for the "
                "teacher. Are you the teacher? Open the teacher's link that the app printed."
            )
        return _("You can watch runs, not change them. Where the app printed an operator link at its start, that link lets you do both.")


def _scope_of(request: Any) -> MutableMapping[str, Any]:
    """The mapping in which things are kept with a request. Gradio's request has Starlette's request in it. Any other object has an empty
    one."""
    scope: MutableMapping[str, Any] = getattr(getattr(request, "request", request), "scope", {})
    return scope


def _from_this_machine(request: Any) -> bool:
    """A direct connection under a local name.

    A proxy in between could be forwarding for anyone, and a foreign name may have been made to point here (DNS rebinding).
    """
    if any(_OF_PROXIES.fullmatch(header.lower()) for header in request.headers):
        return False
    host = host_name(request.headers.get("host", ""))
    client = getattr(request.client, "host", None) or ""
    return is_loopback(host) and is_loopback(client)


def _token_of(request: Any, header: str, cookie: str) -> str:
    """The token that a request shows in a header or a cookie; empty when it shows none."""
    return request.headers.get(header) or token_in_cookies(request.headers.get("cookie", ""), cookie)


def _bearer(request: Any) -> str:
    """What a program shows as ``Authorization: Bearer TOKEN`` (RFC 6750); empty when it shows nothing of the kind."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def with_our_cookie_only(scope: Scope) -> Scope:
    """The request with our own cookies alone. Other programs on this machine may set cookies as well, and nothing in the app needs them."""
    cookies = "; ".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie")
    tokens = {name: token_in_cookies(cookies, name) for name in OUR_COOKIES}
    ours = "; ".join(f"{name}={token}" for name, token in tokens.items() if _TOKEN.fullmatch(token))
    others = [(name, value) for name, value in scope["headers"] if name != b"cookie"]
    return {**scope, "headers": [*others, (b"cookie", ours.encode("latin-1"))] if ours else others}


def token_of(environment: Mapping[str, str]) -> str:
    """The token that a person set; empty when there is none. Raises ValueError for one that a cookie cannot carry."""
    token = environment.get(TOKEN_VARIABLE, "")
    if token and not _TOKEN.fullmatch(token):
        raise ValueError(
            _("{token_variable} must be at most 200 letters, digits and characters of -._~+/= without spaces").format(
                token_variable=TOKEN_VARIABLE
            )
        )
    return token


def serves_one_person(host: str, environment: Mapping[str, str]) -> bool:
    """Whether only the person at this machine can start runs, so that runs may use that person's hub token.

    A Space is never such an app, whatever address it listens on: others reach it through a proxy.
    """
    return is_loopback(host) and not on_a_space(environment)
