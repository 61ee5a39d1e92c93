"""What a class shares for as long as the app runs: the links, where the teacher is, what students may do, and what they are called."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from rlhf_studio.ui.classroom.students import Students
from rlhf_studio.ui.visiting.tokens import is_token


@dataclass(frozen=True)
class TeachersPage:
    """Where the teacher is: a page and its parameters in the address. ``seq`` grows with every move; 0 leads nobody anywhere."""

    seq: int = 0
    page: str = ""
    params: Mapping[str, str] = field(default_factory=dict)


class Classroom:
    """What a class shares. Its methods may be called from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.start = secrets.token_hex(4)  # changes with every start of the app, so that pages notice it
        self._token = new_token()
        self._teachers_token = ""
        self._teachers_page = TeachersPage()
        self._moves = 0
        self._names: dict[str, str] = {}
        self.students = Students()
        self.students_start_runs = True
        self.names_allowed = True
        self.talks_to = ""  # the run that students may ask on the Talk page; empty while they may not

    # --- links ----------------------------------------------------------------------------------------------------------------

    def admits(self, token: str) -> bool:
        """Whether this is the token of the class link."""
        return is_token(token, self._token)

    @property
    def link(self) -> str:
        """The token of the class link; empty when the class has ended."""
        return self._token

    def admit(self, token: str) -> None:
        """This is the token of the class link now; the one before ends at once."""
        self._token = token

    @property
    def ended(self) -> bool:
        """Whether the class is over. A new link begins another one."""
        return not self._token

    @property
    def teachers_token(self) -> str:
        """What has replaced the token with which the app was started; empty when nothing has."""
        return self._teachers_token

    def admit_teacher(self, token: str) -> None:
        """This is the teacher's token now; the one before ends at once."""
        self._teachers_token = token

    # --- the teacher's page ---------------------------------------------------------------------------------------------------

    @property
    def teachers_page(self) -> TeachersPage:
        """Where the teacher leads."""
        return self._teachers_page

    def lead(self, page: str, params: Mapping[str, str]) -> None:
        """The teacher is here now; an empty page leads nobody any more."""
        with self._lock:
            self._moves += 1
            self._teachers_page = TeachersPage(self._moves if page else 0, page, dict(params))

    # --- names ----------------------------------------------------------------------------------------------------------------

    def name_of(self, person: str) -> str:
        """What a student has typed, by the key of the cookie; empty for none, and when names are off."""
        return self._names.get(person, "") if self.names_allowed else ""

    def call(self, person: str, name: str) -> None:
        """A student has typed a name; an empty one is forgotten."""
        with self._lock:
            self._names = (
                {**self._names, person: name} if name else {key: other_name for key, other_name in self._names.items() if key != person}
            )

    def know(self, names: Mapping[str, str]) -> None:
        """These are the names, and no others."""
        with self._lock:
            self._names = dict(names)

    def end(self) -> None:
        """The class is over: its link admits nobody, the teacher leads nobody, and all students and names are forgotten."""
        with self._lock:
            self._token, self._names, self.talks_to = "", {}, ""
            self._teachers_page = TeachersPage()
        self.students.know({}, self.students.places)


def new_token() -> str:
    """For a class link; short, because some will type it."""
    return secrets.token_urlsafe(9)


def new_teachers_token() -> str:
    """For a teacher's link, which makes whoever opens it an operator."""
    return secrets.token_urlsafe(24)
