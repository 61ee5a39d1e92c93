"""Which columns hold what: the usual names, the shapes that examples come in, and how one of them is recognised."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rlhf_studio.config import DemonstrationsConfig, PairsConfig
from rlhf_studio.inputs.prompts.cells import BESIDE, beside_columns
from rlhf_studio.inputs.prompts.errors import PromptsError, no_column
from rlhf_studio.inputs.prompts.sources.rows import root_of
from rlhf_studio.language import S_

USUAL = {
    "prompt": ("prompt", "question", "query", "instruction", "input", "history"),
    "completion": ("completion", "response", "answer", "output"),
    "text": ("text", "content"),
    "messages": ("messages", "conversations", "conversation"),
    "chosen": ("chosen", "preferred", "chosen_response"),
    "rejected": ("rejected", "dispreferred", "rejected_response"),
    "answer_a": ("human_ref_A",),
    "answer_b": ("human_ref_B",),
    "a_is_better": ("labels",),
    "responses": ("responses", "completions", "answers"),
    "ranks": ("ranks", "rank", "ranking", "rankings"),
    "response": ("response", "completion", "answer", "output", "text"),
    "rating": ("rating", "score", "label", "stars", "reward"),
    "chosen_rating": ("score_chosen", "chosen_score", "chosen_rating", "rating_chosen", "chosen_avg_rating"),
    "annotator": ("annotator",),
    "rejected_rating": ("score_rejected", "rejected_score", "rejected_rating", "rating_rejected", "rejected_avg_rating"),
    "tie": ("tie",),
    "confidence": ("confidence",),
}
"""Part of an example -> what data sets call its column. A part named ``prompt`` is chosen by the setting ``prompt_column``."""
ARGILLA = ("preference", "suggestions")
"""Columns of Argilla's exports, bare or in front of a dot: their records depend on the questions that people were asked."""
UNLIKELY = ("input", "history")
"""Columns that hold the prompt only where no other one does: else they say more about it."""
RATINGS = ("chosen_rating", "rejected_rating")
"""Parts that are read only when margins are made from them."""
OWN = ("tie", "confidence")
"""Parts that exported feedback has. In other data a column of that name may hold something else: then it is not used."""
WITHOUT_SETTING = ("annotator", "answer_a", "answer_b", "a_is_better", "system", "history", "tools")
"""Parts whose column no setting names."""
ONLY_NAMED = ("margin", "group")
"""Parts that are read only when a setting names their column."""


@dataclass(frozen=True)
class Shape:
    """A way in which examples come.

    Attributes:
        words: its name in sentences for people.
        needs: the parts that must be there.
        may: parts that are used where they are there.
    """

    words: str
    needs: tuple[str, ...]
    may: tuple[str, ...] = ()


CHAT = Shape("chats", ("messages",), ("system", "tools"))
COMPLETIONS = Shape(S_("prompts with completions"), ("prompt", "completion"), tuple(BESIDE))
TEXTS = Shape(S_("whole texts"), ("text",))
PREFERRED = Shape(S_("the preferred responses of pairs"), ("chosen",), ("prompt", *BESIDE))
PAIRS = Shape("pairs", ("chosen", "rejected"), ("prompt", "messages", *RATINGS, "annotator", *OWN, *ONLY_NAMED, *BESIDE))
LABELLED = Shape(S_("pairs of answers with a label"), ("prompt", "answer_a", "answer_b", "a_is_better"), ("group", *BESIDE))
RANKINGS = Shape("rankings", ("prompt", "responses", "ranks"), ("annotator", "confidence", "group", *BESIDE))
RATED = Shape("rated responses", ("response", "rating"), ("prompt", "annotator", "confidence", "group", *BESIDE))

SHAPES: dict[type[DemonstrationsConfig | PairsConfig], tuple[Shape, ...]] = {
    DemonstrationsConfig: (CHAT, COMPLETIONS, TEXTS),
    PairsConfig: (PAIRS, LABELLED, RANKINGS, RATED),
}
"""Kind of examples -> the shapes it may have. :data:`PREFERRED` is for demonstrations that are none of theirs."""
NEEDED = {
    DemonstrationsConfig: S_("demonstrations need a prompt and a completion, or messages, or text"),
    PairsConfig: S_("pairs need chosen and rejected, or a prompt with responses and ranks, or a prompt with response and rating"),
}


@dataclass(frozen=True)
class Layout:
    """A recognised shape, and the column of each of its parts that is there."""

    shape: Shape
    columns: dict[str, str]

    @property
    def sentence(self) -> str:
        """``prompts with completions (prompt, completion)``."""
        return f"{self.shape.words} ({', '.join(self.columns.values())})"


def setting_of(part: str) -> str:
    """The setting that names a part's column, or stands in for it."""
    other = {**dict.fromkeys(RATINGS, "data.margin_column"), **dict.fromkeys(WITHOUT_SETTING, "data.source")}
    return other.get(part, f"data.{part}_column")


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
    names = dict.fromkeys(name for part in parts if part not in named for name in (*USUAL.get(part, ()), *BESIDE.get(part, ())))
    return tuple(name for name in names if name not in named.values())


def recognise(data: DemonstrationsConfig | PairsConfig, columns: list[str], without: Collection[str] = ()) -> Layout:
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
    if not fitting and isinstance(data, DemonstrationsConfig) and set(named) <= {"prompt", "input"} and _usual("chosen", columns):
        fitting = [PREFERRED]
    if not fitting:
        raise _no_shape(data, shapes, named, columns)
    (shape,) = fitting
    return Layout(shape, _columns(shape, data, columns, without))


def widened(layout: Layout, data: DemonstrationsConfig | PairsConfig, columns: list[str], without: Collection[str]) -> Layout:
    """The same shape with the further parts that these columns have, but ``without`` some. Raises :class:`PromptsError`."""
    needed = {part: layout.columns[part] for part in layout.shape.needs}
    return Layout(layout.shape, {**_columns(layout.shape, data, columns, without), **needed})


def _usual(part: str, columns: list[str]) -> list[str]:
    return [name for name in USUAL.get(part, ()) if name in columns]


def _columns(shape: Shape, data: DemonstrationsConfig | PairsConfig, columns: list[str], without: Collection[str]) -> dict[str, str]:
    """The column of each part that is there. Raises :class:`PromptsError` where two could be meant."""
    unread = () if isinstance(data, PairsConfig) and data.margin_from_ratings else RATINGS
    parts = [part for part in (*shape.needs, *shape.may) if part not in (*unread, *without, *BESIDE)]
    named = named_columns(data)
    taken: dict[str, str] = {}
    for part in parts:
        names = [named[part]] if part in named else _usual(part, columns)
        if part == "prompt" and len(names) > 1:
            names = [name for name in names if name not in UNLIKELY]
        if part == "messages" and shape is PAIRS and "prompt" in taken:
            names = []
        names = [name for name in names if part in named or name not in {*taken.values(), *named.values()}]
        if len(names) > 1:
            way_out = (
                S_("use a file with one of them, or name a column with margins here") if part in RATINGS else S_("name one of them here")
            )
            raise PromptsError(setting_of(part), f"the columns {_listed(names)} could both be meant; {way_out}")
        if names:
            taken[part] = names[0]
    used = {root_of(name, columns) for name in (*taken.values(), *named.values())}
    beside = beside_columns(columns, taken.get("prompt", ""), used, named.get("input", ""), data.chat_template)
    return taken | {part: name for part, name in beside.items() if part in shape.may and part not in without}


def _two_shapes(fitting: list[Shape], named: dict[str, str], columns: list[str]) -> PromptsError:
    """The error for columns that fit several shapes: the deciding column of each, and the settings to choose with."""
    deciding = [next(part for part in reversed(shape.needs) if part not in named) for shape in fitting]
    names = [_usual(part, columns)[0] for part in deciding]
    settings = " or ".join(setting_of(part) for part in deciding)
    return PromptsError(setting_of(deciding[0]), f"the columns {_listed(names)} could both be meant; name one of them in {settings}")


def _no_shape(data: DemonstrationsConfig | PairsConfig, shapes: list[Shape], named: dict[str, str], columns: list[str]) -> PromptsError:
    if named:
        shape = min(shapes, key=lambda candidate: sum(part not in named and not _usual(part, columns) for part in candidate.needs))
        part = next(part for part in shape.needs if part not in named and not _usual(part, columns))
        return no_column(setting_of(part), USUAL[part][0], columns)
    if any(str(name).partition(".")[0] in ARGILLA for name in columns):
        how = S_("write each record as prompt, chosen and rejected, or as prompt, response and rating")
        raise PromptsError("data.source", f"the columns {_listed(columns[:8])} look like an export of Argilla; {how}")
    listed = ", ".join(str(name)[:40] for name in columns[:12]) + (", ..." if len(columns) > 12 else "")
    return PromptsError("data.source", f"the columns are: {listed or '(none)'}; {NEEDED[type(data)]}; others can be named in the settings")


def _no_such_mixture(data: DemonstrationsConfig | PairsConfig, named: dict[str, str]) -> PromptsError:
    last = list(named)[-1]
    others = " and ".join(setting_of(part) for part in list(named)[:-1])
    return PromptsError(setting_of(last), f"cannot be used together with {others}; {NEEDED[type(data)]}")


def _listed(names: list[str]) -> str:
    return " and ".join(repr(name) for name in names)
