"""A card of the gallery, and the words that several of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.language import N_, _, ngettext
from rlhf_studio.lessons.kit.pictures import Picture

Numbers = Mapping[str, Any]
OUTCOMES = {
    "gold": N_("Gold"),
    "kl": N_("KL to the start, nats per answer"),
    "clipped": N_("Clipped tokens"),
    "value_fit": N_("Value fit, all steps"),
    "early_value_fit": N_("Value fit, steps 2 to 10"),
}
WORDS = {
    "differs": N_("differs"),
    "leans": N_("leans: not certain"),
    "no difference": N_("no difference seen"),
    "unfinished": N_("not finished"),
}
HEAD = (N_("Outcome"), N_("Changed less unchanged"), N_("95 % interval"), N_("Verdict"))


@dataclass(frozen=True)
class Card:
    """An experiment, in the language that is spoken.

    Attributes:
        name: in addresses and commands.
        answer: one sentence, made of the numbers; a line for each change, where there are two.
        notes: what to know of the numbers, a sentence each; first of all that they are not whole, where they are not.
        head, rows: a table; none where ``rows`` is empty.
        starts: what can be started on the Train page, see :func:`start`.
        more: where one can read or see more: a page (``tab``) and its parameters, for which there is the text ``more_text``.
        hours: of one core, for all of its runs; a command makes them again.
    """

    name: str
    question: str
    answer: str
    picture: Picture
    caption: str
    hours: float
    notes: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    starts: Sequence[Mapping[str, Any]] = ()
    more: Mapping[str, str] = field(default_factory=dict)
    more_text: str = ""

    @property
    def command(self) -> str:
        return f"python -m benchmarks.gallery {self.name} --folder RUNS"

    @property
    def takes(self) -> str:
        """How long the command takes."""
        if self.hours >= 2:
            return _("about {hours} hours of one core").format(hours=f"{self.hours:.0f}")
        return _("about {minutes} minutes of one core").format(minutes=max(1, round(60 * self.hours)))

    def as_data(self) -> dict[str, Any]:
        """For a page."""
        return {**asdict(self), "command": self.command, "takes": self.takes}


def start(recipe: str, values: Mapping[str, str], change: str = "") -> dict[str, Any]:
    """A run that a card offers: a recipe with some values, and the words of the link to it, with the change where there are several."""
    minutes = round(load_recipe(recipe).minutes or 0)
    title = ngettext("Run it here: about {count} minute", "Run it here: about {count} minutes", minutes).format(count=minutes)
    return {"title": _("{title}, {change}").format(title=title, change=change) if change else title, "recipe": recipe, "values": values}


def signed(value: float, digits: int = 2) -> str:
    """With its sign, as people write it."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")  # no minus before a zero


def unfinished(n: Numbers) -> list[str]:
    """The first note of a card whose runs are not all there."""
    if n["made"] == n["planned"]:
        return []
    return [_("Not finished: {made} of {planned} runs. These figures will change.").format(made=n["made"], planned=n["planned"])]
