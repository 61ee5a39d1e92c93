"""The lines of a followed log whose steps are not stored yet. What they weigh is summed as they come, never counted anew."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field

from rlhf_studio.analysis.logs.index import TRAINED
from rlhf_studio.analysis.logs.line import LogLine

LINE_BYTES = 500  # that a line takes beside its own


@dataclass
class Waiting:
    """The lines of a step that is not stored yet."""

    lines: list[LogLine]
    heard: float  # when its last line came
    size: int = 0
    sizes: list[int] = field(default_factory=list)
    trained: bool = False  # whether one of them makes a training step

    @property
    def weight(self) -> int:
        """Bytes in memory, roughly: many short lines weigh more than they have bytes."""
        return self.size + LINE_BYTES * len(self.lines)

    def add(self, line: LogLine, size: int) -> None:
        self.lines.append(line)
        self.sizes.append(size)
        self.size += size
        self.trained = self.trained or line.kind in TRAINED

    def without(self, leaves: Callable[[LogLine], bool]) -> Waiting:
        """The same without some lines."""
        rest = Waiting([], self.heard)
        for line, size in zip(self.lines, self.sizes, strict=True):
            if not leaves(line):
                rest.add(line, size)
        return rest


class WaitingSteps:
    """The steps that wait, those that were trained apart from those of which only other lines have come.

    Attributes:
        trained_weight, untrained_weight: bytes of all lines of these steps.
    """

    def __init__(self) -> None:
        self._of: dict[int, Waiting] = {}
        self._trained: list[int] = []  # in order, as the others
        self._untrained: list[int] = []
        self.trained_weight = self.untrained_weight = 0

    def __contains__(self, step: int) -> bool:
        return step in self._of

    def add(self, step: int, line: LogLine, size: int, now: float) -> Waiting:
        """Let a line wait with those of its step."""
        waiting = self.pop(step) if step in self._of else Waiting([], now)
        waiting.add(line, size)
        waiting.heard = now
        self.put(step, waiting)
        return waiting

    def put(self, step: int, waiting: Waiting) -> None:
        """Let a step wait that does not."""
        self._of[step] = waiting
        insort(self._trained if waiting.trained else self._untrained, step)
        self._weigh(waiting, 1)

    def pop(self, step: int) -> Waiting:
        """Take a step out."""
        waiting = self._of.pop(step)
        steps = self._trained if waiting.trained else self._untrained
        del steps[bisect_right(steps, step) - 1]
        self._weigh(waiting, -1)
        return waiting

    def heard(self, step: int) -> float:
        """When the last line of a step came."""
        return self._of[step].heard

    def trained(self) -> list[int]:
        """The steps that were trained, in order."""
        return list(self._trained)

    def untrained_until(self, step: int) -> list[int]:
        """The other steps up to ``step``, in order."""
        return self._untrained[: bisect_right(self._untrained, step)]

    def leave_out(self, leaves: Callable[[LogLine], bool]) -> None:
        """Drop lines, and steps of which none is left."""
        for step in list(self._of):
            rest = self.pop(step).without(leaves)
            if rest.lines:
                self.put(step, rest)

    def _weigh(self, waiting: Waiting, sign: int) -> None:
        if waiting.trained:
            self.trained_weight += sign * waiting.weight
        else:
            self.untrained_weight += sign * waiting.weight
