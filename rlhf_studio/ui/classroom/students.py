"""Who has opened the class link, in the order in which they came. The first ones take part, as many as the class has places; the others are
late.

So somebody who makes the app hand out many cookies takes no place from students who came before, and the teacher can remove those who came
after.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

PLACES = 60
MOST_PLACES = 300
MOST_LATE = 700


class Students:
    """Students by the keys of their cookies. The methods may be called from several threads.

    Attributes:
        places: how many may take part.
        keep: writes down that somebody has come, before this object lists them. Gives the number that :attr:`came` has for them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._came: dict[str, float] = {}
        self._with_place: frozenset[str] = frozenset()
        self.places = PLACES
        self.keep: Callable[[str], float] = lambda key: 0.0

    @property
    def came(self) -> Mapping[str, float]:
        """When each of them came, the first one first."""
        return self._came

    @property
    def late(self) -> int:
        """How many came after all places were taken."""
        return max(0, len(self._came) - self.places)

    def has_place(self, key: str) -> bool:
        """Whether this student takes part."""
        return key in self._with_place

    @property
    def full(self) -> bool:
        """Whether no more students are listed, not even as late ones."""
        return len(self._came) >= self.places + MOST_LATE

    def is_late(self, key: str) -> bool:
        """Whether this student came when all places were taken."""
        return key in self._came and not self.has_place(key)

    def come(self, key: str, admitted: Callable[[], bool] = lambda: True) -> None:
        """Somebody has opened the class link. Students who have come before keep their place. ``admitted`` says whether the link is still
        valid.

        Raises what ``keep`` raises.
        """
        with self._lock:
            if admitted() and key not in self._came and len(self._came) < self.places + MOST_LATE:
                self._set({**self._came, key: self.keep(key)})

    def make_room(self, places: int) -> None:
        """Set how many may take part."""
        with self._lock:
            self.places = places
            self._set(self._came)

    def strike(self, people: Collection[str]) -> None:
        """Remove these students, as if they had never come."""
        with self._lock:
            self._set({key: at for key, at in self._came.items() if key not in people})

    def begin_again(self, begin: Callable[[], None]) -> None:
        """Remove all students. ``begin`` does the same elsewhere; nobody can come in between. Raises what ``begin`` raises."""
        with self._lock:
            begin()
            self._set({})

    def know(self, came: Mapping[str, float], places: int) -> None:
        """Replace the list: exactly these have come, and ``places`` of them take part."""
        with self._lock:
            self.places = places
            self._set(dict(came))

    def _set(self, came: dict[str, float]) -> None:
        self._came, self._with_place = came, frozenset(list(came)[: self.places])
