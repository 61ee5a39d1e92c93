"""Pairs of a source: two responses of which one is preferred, rankings of several, or responses with ratings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from rlhf_studio.config import PairsConfig
from rlhf_studio.inputs.examples.reading.notes import source_notes
from rlhf_studio.inputs.examples.reading.rated import rated_pairs
from rlhf_studio.inputs.examples.reading.shapes import LABELLED, OWN, PAIRS, RANKINGS, USUAL, named_columns, setting_of
from rlhf_studio.inputs.examples.reading.table import (
    Cells,
    ExampleTable,
    bounded,
    nothing_left_of,
    open_table_of,
    texts_of,
    weight_of,
    with_own_setting,
)
from rlhf_studio.inputs.examples.rows import Pair, Pairs
from rlhf_studio.inputs.prompts.dialogues import read_dialogue, shared_dialogue
from rlhf_studio.inputs.prompts.errors import PromptsError
from rlhf_studio.inputs.prompts.messages import content_of, further, spoken
from rlhf_studio.inputs.prompts.sources.opening import STALL_SECONDS
from rlhf_studio.inputs.prompts.sources.rows import Tick
from rlhf_studio.language import S_

MOST_RANKED = 32
"""Most responses of one ranking, which give 496 pairs: a row may hold 50,000 short ones, which would give a thousand million."""
LONG_PROMPT = 16
"""Characters from which on a prompt that begins both responses is taken to be repeated there, not to be there by chance."""


def read_pairs(data: PairsConfig, tick: Tick = lambda text: None, *, limit: int | None = None, seconds: float = STALL_SECONDS) -> Pairs:
    """The pairs that ``data.source`` names, of the first ``limit`` rows (None: all up to ``data.max_rows``).

    Args:
        tick: called with the progress of a slow source, as text.
        seconds: the longest wait for the next rows of a slow source.

    Raises :class:`PromptsError` for a source that is missing, not readable, of no known shape, in which nothing tells which response is
    better, or of which nothing is left.
    """
    unfit: dict[str, str] = {}
    while True:
        try:
            table = replace(open_table_of(data, limit, seconds, tick), unfit=unfit)
            rows = list(bounded(_usable(table), data, table))
            break
        except PromptsError as error:
            part = _unfit_part(error, data)
            if part is None:
                raise with_own_setting(error, data) from None
            unfit[part] = error.message  # a column of another origin, which only has the name: read all again without it
    if not table.partial:
        _check(rows, table)
    table.counts["tie"] = sum(row.tie for row in rows)
    judged = {(*texts_of(row), row.tie) for row in rows}
    table.counts["both_ways"] = sum((*before, rejected, chosen, False) in judged for *before, chosen, rejected, tie in judged if not tie)
    table.counts["judged_again"] = len(rows) - len(judged) if data.drop_duplicates else 0
    shape = table.layout.sentence if table.layout else ""
    return Pairs(rows, table.left_out, table.source.columns, shape, source_notes(table), table.partial)


def _unfit_part(error: PromptsError, data: PairsConfig) -> str | None:
    """The part that was read because of its column's name alone, and holds something else; None where something else is wrong."""
    return next((part for part in OWN if error.field == setting_of(part) and part not in named_columns(data)), None)


def _check(rows: list[Pair], table: ExampleTable) -> None:
    if not rows:
        raise nothing_left_of(table.data, table.left_out)
    if all(row.tie for row in rows):
        part = "tie" if "tie" in (table.layout.columns if table.layout else {}) else "ranks"
        raise PromptsError(f"data.{part}_column", "all pairs are ties, so nothing tells which responses are better")


def _usable(table: ExampleTable) -> Iterator[Pair]:
    """The pairs that training can use; the others are counted."""
    for pair in _pairs(table):
        chosen, rejected = pair.responses()
        if pair.answers is None and not (pair.chosen.strip() and pair.rejected.strip()):
            table.left_out["empty_response"] += 1
        elif chosen == rejected:
            table.left_out["equal"] += 1
            table.add(pair)
        else:
            yield pair


def _pairs(table: ExampleTable) -> Iterator[Pair]:
    assert isinstance(table.data, PairsConfig)
    sure = _sure_enough(table, table.data)
    first = next(sure, None)
    if first is None:
        return
    rows = _with_first(first, sure)
    if first.layout.shape is PAIRS:
        for cells in rows:
            if (pair := _pair(cells, table, table.data)) is not None:
                yield pair
    elif first.layout.shape is LABELLED:
        yield from map(_labelled, rows)
    elif first.layout.shape is RANKINGS:
        for cells in rows:
            yield from _ranked(cells)
    else:
        yield from rated_pairs(rows, table, table.data)


def _with_first(first: Cells, others: Iterator[Cells]) -> Iterator[Cells]:
    yield first
    yield from others


def _sure_enough(table: ExampleTable, data: PairsConfig) -> Iterator[Cells]:
    """The rows of which people were sure enough. Nobody's word counts where they were not sure at all."""
    for cells in table.rows():
        weight = weight_of(cells)
        if weight < data.min_confidence or weight == 0:
            table.left_out["low_confidence"] += 1
        else:
            yield cells


def _pair(cells: Cells, table: ExampleTable, data: PairsConfig) -> Pair | None:
    """The pair in a row with all that is said of it; None, and counted, where two chats share no prompt."""
    pair = _responses(cells, table)
    if pair is None:
        table.left_out["no_shared_prompt"] += 1
        return None
    if cells.lacks_prompt() and not pair.prompt:
        table.left_out["no_prompt"] += 1
        return None
    tie, group = cells.is_true("tie"), cells.text_or_number("group")
    margin = None if tie else _margin(cells, data)
    return replace(pair, weight=weight_of(cells), tie=tie, group=group, margin=margin, annotator=cells.annotator())


def _responses(cells: Cells, table: ExampleTable) -> Pair | None:
    """Prompt and responses alone."""
    if cells.is_list("chosen") or cells.is_list("rejected"):
        return _from_chats(cells)
    chosen, rejected = cells.text("chosen"), cells.text("rejected")
    if cells.is_list("prompt"):
        prompt_text, messages = cells.prompt()
        return Pair(cells.number, prompt_text, chosen, rejected, messages)
    prompt = cells.text("prompt")
    if len(prompt) >= LONG_PROMPT and chosen.startswith(prompt) and rejected.startswith(prompt):
        table.counts["repeats_prompt"] += 1
        chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
    if not prompt.strip():
        return _from_texts(cells, chosen, rejected, table)
    prompt_text, messages = cells.prompt()
    return Pair(cells.number, prompt_text, chosen, rejected, messages)


def _from_texts(cells: Cells, chosen: str, rejected: str, table: ExampleTable) -> Pair | None:
    """Two whole texts: dialogues with their shared beginning as prompt, or plain texts, of which nothing tells where a prompt ends."""
    shared = shared_dialogue(chosen, rejected)
    if shared is None:
        if cells.data.chat_template and chosen.strip() and rejected.strip():
            message = S_(f"row {cells.number} holds plain texts without a prompt, which no chat template can write; switch this off")
            raise PromptsError("data.chat_template", message)
        return Pair(cells.number, cells.prompt("", as_chat=False)[0], chosen, rejected)
    prompt = shared.prompt
    if not prompt or (shared.early and cells.data.chat_template):
        return None
    table.counts["pair_dialogue"] += 1
    table.counts["early"] += shared.early
    if not cells.data.chat_template:
        prompt_text, messages = cells.prompt(prompt)
        return Pair(cells.number, prompt_text, chosen[len(prompt) :], rejected[len(prompt) :], messages)
    before = read_dialogue(prompt)
    messages = cells.whole_chat(before.messages if before is not None else ())
    return Pair(cells.number, prompt, chosen[len(prompt) :].strip(), rejected[len(prompt) :].strip(), messages)


def _from_chats(cells: Cells) -> Pair | None:
    """Two lists of messages: whole chats that differ in their last answer, or the answers alone to the row's prompt."""
    chosen, rejected = cells.messages("chosen"), cells.messages("rejected")
    part = "prompt" if "prompt" in cells.parts else "messages"
    if [message["role"] for message in (*chosen, *rejected)] == ["assistant"] * 2 and part in cells.parts:
        own = cells.messages(part) if cells.is_list(part) else [{"role": "user", "content": cells.text(part)}]
        chosen, rejected = own + chosen, own + rejected
    shared = chosen[:-1]
    last = [message["role"] for chat in (chosen, rejected) for message in chat[-1:]]
    if shared != rejected[:-1] or last != ["assistant"] * 2:
        return None
    answers = (chosen[-1], rejected[-1])
    messages = cells.whole_chat(shared)
    texts = (content_of(chosen[-1]), content_of(rejected[-1]))
    return Pair(cells.number, spoken(messages), *texts, messages, answers=answers if further(answers) else None)


def _labelled(cells: Cells) -> Pair:
    """The pair of two answers, of which the label 1 prefers the first and 0 the second."""
    label = cells.number_in("a_is_better")
    if label not in (0, 1):
        raise cells.error("a_is_better", repr(cells.parts["a_is_better"])[:60], "; 1 prefers the first answer and 0 the second")
    prompt, messages = cells.prompt()
    better, worse = ("answer_a", "answer_b") if label else ("answer_b", "answer_a")
    return Pair(cells.number, prompt, cells.text(better), cells.text(worse), messages, group=cells.text_or_number("group"))


def _margin(cells: Cells, data: PairsConfig) -> float | None:
    """How much better the chosen response is: the margin's column, or the difference of two ratings; None without."""
    if "margin" in cells.parts:
        part, margin = "margin", cells.number_in("margin")
    elif data.margin_from_ratings:
        part, ratings = "chosen_rating", [cells.number_in(part) for part in ("chosen_rating", "rejected_rating") if part in cells.parts]
        if len(ratings) < 2:
            names = f"{' and '.join(name[0] for name in (USUAL['chosen_rating'], USUAL['rejected_rating']))}"
            raise PromptsError(
                "data.margin_from_ratings", f"there are no columns such as {names}; name one with margins in data.margin_column"
            )
        margin = None if None in ratings else (ratings[0] or 0.0) - (ratings[1] or 0.0)
    else:
        return None
    return None if margin is None else cells.margin(part, margin)


def _ranked(cells: Cells) -> Iterator[Pair]:
    """Every two of k responses as a pair, k (k - 1) / 2 in all; equal ranks are ties."""
    if (count := len(cells.items("responses"))) > MOST_RANKED:
        few = S_(f"; every two of them would be a pair, and at most {MOST_RANKED} are compared: use fewer, or ratings")
        raise cells.error("responses", f"{count:,} responses", few)
    responses = [cells.text_in("responses", cell) for cell in cells.items("responses")]
    ranks = [cells.number_of("ranks", cell) for cell in cells.items("ranks")]
    if len(responses) != len(ranks) or None in ranks:
        raise cells.error("ranks", f"{sum(rank is not None for rank in ranks)} ranks", f" for {len(responses)} responses")
    group, weight, annotator = cells.text_or_number("group"), weight_of(cells), cells.annotator()
    prompt, messages = cells.prompt()
    ordered = sorted(zip(ranks, responses, strict=True), key=lambda pair: pair[0] or 0.0)
    for (first, better), (second, worse) in combinations(ordered, 2):
        yield Pair(cells.number, prompt, better, worse, messages, None, weight, first == second, group, annotator=annotator)
