"""Which columns hold what: the usual names, the shapes that examples come in, and how one of them is recognised."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from rlhf_studio.config import DemonstrationsConfig, PairsConfig
from rlhf_studio.inputs.prompts.errors import PromptsError, no_column

USUAL = {
    "prompt": ("prompt", "question", "query", "instruction", "input"),
    "input": ("input", "context"),
    "completion": ("completion", "response", "answer", "output"),
    "text": ("text", "content"),
    "messages": ("messages", "conversations", "conversation"),
    "chosen": ("chosen", "preferred"),
    "rejected": ("rejected", "dispreferred"),
    "responses": ("responses", "completions", "answers"),
    "ranks": ("ranks", "rank", "ranking", "rankings"),
    "response": ("response", "completion", "answer", "output", "text"),
    "rating": ("rating", "score", "label", "stars", "reward"),
    "chosen_rating": ("score_chosen", "chosen_score", "chosen_rating", "rating_chosen"),
    "annotator": ("annotator",),
    "rejected_rating": ("score_rejected", "rejected_score", "rejected_rating", "rating_rejected"),
    "tie": ("tie",),
    "confidence": ("confidence",),
}
"""Part of an example -> what data sets call its column. A part named ``prompt`` is chosen by the setting ``prompt_column``."""
INSTRUCTION = "instruction"
"""The prompt's column beside which a column ``input`` holds what the instruction is about."""
RATINGS = ("chosen_rating", "rejected_rating")
"""Parts that are read only when margins are made from them."""
OWN = ("tie", "confidence")
"""Parts whose usual column is the one of exported feedback. In data of another origin it may hold something else: then it is not used."""
ONLY_NAMED = ("margin", "group")
"""Parts that are read only when a setting names their column."""


@dataclass(frozen=True)
class Shape:
    """A way in which examples come.

    Attributes:
        words: how a person is told.
        needs: the parts that must be there.
        may: parts that are used where they are there.
    """

    words: str
    needs: tuple[str, ...]
    may: tuple[str, ...] = ()


CHAT = Shape("chats", ("messages",))
COMPLETIONS = Shape("prompts with completions", ("prompt", "completion"), ("input",))
TEXTS = Shape("whole texts", ("text",))
PREFERRED = Shape("the preferred responses of pairs", ("chosen",), ("prompt",))
PAIRS = Shape("pairs", ("chosen", "rejected"), ("prompt", *RATINGS, "annotator", *OWN, *ONLY_NAMED))
RANKINGS = Shape("rankings", ("prompt", "responses", "ranks"), ("annotator", "confidence", "group"))
RATED = Shape("rated responses", ("response", "rating"), ("prompt", "annotator", "confidence", "group"))

SHAPES: dict[type[DemonstrationsConfig | PairsConfig], tuple[Shape, ...]] = {
    DemonstrationsConfig: (CHAT, COMPLETIONS, TEXTS),
    PairsConfig: (PAIRS, RANKINGS, RATED),
}
"""Kind of examples -> the shapes it may have. :data:`PREFERRED` is for demonstrations that are none of theirs."""
NEEDED = {
    DemonstrationsConfig: "demonstrations need a prompt and a completion, or messages, or text",
    PairsConfig: "pairs need chosen and rejected, or a prompt with responses and ranks, or a prompt with response and rating",
}


@dataclass(frozen=True)
class Found:
    """A recognised shape, and the column of each of its parts that is there."""

    shape: Shape
    columns: dict[str, str]

    @property
    def sentence(self) -> str:
        """``prompts with completions (prompt, completion)``."""
        return f"{self.shape.words} ({', '.join(self.columns.values())})"


def setting_of(part: str) -> str:
    """The setting that names a part's column, or stands in for it."""
    return "data.margin_column" if part in RATINGS else f"data.{part}_column"


def named_columns(data: DemonstrationsConfig | PairsConfig) -> dict[str, str]:
    """Part -> the column that a setting names for it."""
    fields = type(data).model_fields
    parts = [name.removesuffix("_column") for name in fields if name.endswith("_column")]
    return {part: column for part in parts if (column := getattr(data, f"{part}_column"))}


def usual_columns(data: DemonstrationsConfig | PairsConfig) -> tuple[str, ...]:
    """The columns to read where a source has them: the usual names of the parts that no setting names."""
    named = named_columns(data)
    shapes = SHAPES[type(data)] + ((PREFERRED,) if isinstance(data, DemonstrationsConfig) else ())
    parts = dict.fromkeys(part for shape in shapes for part in (*shape.needs, *shape.may))
    names = dict.fromkeys(name for part in parts if part not in named for name in USUAL.get(part, ()))
    return tuple(name for name in names if name not in named.values())


def recognise(data: DemonstrationsConfig | PairsConfig, columns: list[str], without: Collection[str] = ()) -> Found:
    """The shape of a source with these columns. ``without``: parts that are not read.

    Raises :class:`PromptsError` when there is none, when there are two, or when two columns could be the same part.
    """
    named = named_columns(data)
    shapes = [shape for shape in SHAPES[type(data)] if set(named) <= {*shape.needs, *shape.may}]
    if not shapes:
        raise _no_such_mixture(data, named)
    fitting = [shape for shape in shapes if all(named.get(part) or _usual(part, columns) for part in shape.needs)]
    if len(fitting) > 1:
        raise _two_shapes(fitting, named, columns)
    if not fitting and isinstance(data, DemonstrationsConfig) and set(named) <= {"prompt"} and _usual("chosen", columns):
        fitting = [PREFERRED]
    if not fitting:
        raise _no_shape(data, shapes, named, columns)
    (shape,) = fitting
    unread = () if isinstance(data, PairsConfig) and data.margin_from_ratings else RATINGS
    parts = [part for part in (*shape.needs, *shape.may) if part not in (*unread, *without)]
    return Found(shape, dict(_columns(parts, named, columns)))


def _usual(part: str, columns: list[str]) -> list[str]:
    return [name for name in USUAL.get(part, ()) if name in columns]


def _columns(parts: list[str], named: dict[str, str], columns: list[str]) -> Iterator[tuple[str, str]]:
    """The column of each part. Raises :class:`PromptsError` where two could be meant."""
    taken: dict[str, str] = {}
    for part in parts:
        names = [named[part]] if part in named else _usual(part, columns)
        if part == "prompt" and len(names) > 1:
            names = [name for name in names if name != "input"]  # it says more about the instruction beside it
        if part == "input" and "input" not in named and taken.get("prompt") != INSTRUCTION:
            names = []
        names = [name for name in names if part in named or name not in {*taken.values(), *named.values()}]
        if len(names) > 1:
            way_out = "use a file with one of them, or name a column with margins here" if part in RATINGS else "name one of them here"
            raise PromptsError(setting_of(part), f"the columns {_listed(names)} could both be meant; {way_out}")
        if names:
            taken[part] = names[0]
            yield part, names[0]


def _two_shapes(fitting: list[Shape], named: dict[str, str], columns: list[str]) -> PromptsError:
    """The error for columns that fit several shapes: the deciding column of each, and the settings to choose with."""
    deciding = [next(part for part in reversed(shape.needs) if part not in named) for shape in fitting]
    names = [_usual(part, columns)[0] for part in deciding]
    settings = " or ".join(setting_of(part) for part in deciding)
    return PromptsError(setting_of(deciding[0]), f"the columns {_listed(names)} could both be meant; name one of them in {settings}")


def _no_shape(data: DemonstrationsConfig | PairsConfig, shapes: list[Shape], named: dict[str, str], columns: list[str]) -> PromptsError:
    if named:
        shape = min(shapes, key=lambda one: sum(part not in named and not _usual(part, columns) for part in one.needs))
        part = next(part for part in shape.needs if part not in named and not _usual(part, columns))
        return no_column(setting_of(part), USUAL[part][0], columns)
    listed = ", ".join(str(name)[:40] for name in columns[:12]) + (", ..." if len(columns) > 12 else "")
    return PromptsError("data.source", f"the columns are: {listed or '(none)'}; {NEEDED[type(data)]}; others can be named in the settings")


def _no_such_mixture(data: DemonstrationsConfig | PairsConfig, named: dict[str, str]) -> PromptsError:
    last = list(named)[-1]
    others = " and ".join(setting_of(part) for part in list(named)[:-1])
    return PromptsError(setting_of(last), f"cannot be used together with {others}; {NEEDED[type(data)]}")


def _listed(names: list[str]) -> str:
    return " and ".join(repr(name) for name in names)
