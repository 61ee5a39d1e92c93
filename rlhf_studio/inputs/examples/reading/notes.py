"""What a person should know of a source of examples, one sentence each."""

from __future__ import annotations

from collections import Counter

from rlhf_studio.inputs.examples.reading.shapes import ONLY_NAMED, OWN, PREFERRED, named_columns, setting_of
from rlhf_studio.inputs.examples.reading.table import ExampleTable
from rlhf_studio.inputs.prompts.sources.rows import unused_note
from rlhf_studio.language import S_

HAPPENED = {
    "dialogue": S_("{n} {texts} read as a dialogue: the response begins behind the mark of the last answer."),
    "pair_dialogue": S_("{n} {pairs} came as whole dialogues: what both share up to the mark of the last answer is the prompt."),
    "unlearned": S_("{n} {answers} with the weight 0: read as part of the chat, and not learned."),
    "unanswered": S_("The messages behind the last answer of {n} {chats} were left out: nobody answers them."),
    "early": S_(
        "In {n} {pairs} the dialogues differ before their last answers: all that follows the shared beginning counts as the response."
    ),
    "tie": S_("{n} {pairs} came with equally good responses: they are learned as ties, without margins, and accuracy does not count them."),
    "both_ways": S_("{n} {pairs} stand there the other way round too: people disagreed on them."),
    "judged_again": S_(
        "{n} {pairs} came with the texts of an earlier one, but with another annotator, confidence, margin or group: "
        "each is a judgement of its own, and all count."
    ),
    "repeats_prompt": S_("In {n} {pairs} both responses began with the prompt: it was left out there."),
}
"""What happened to some rows -> the sentence about it."""
READ = {
    "tie": S_("Ties are read from the column {column!r}."),
    "confidence": S_("How sure people were is read from the column {column!r}."),
}
"""Part of :data:`OWN` -> the sentence where no setting names its column, and it is read all the same."""
NOUNS = {
    "texts": (S_("text was"), S_("texts were")),
    "chats": ("chat", "chats"),
    "pairs": ("pair", "pairs"),
    "answers": (S_("answer came"), S_("answers came")),
}


def source_notes(table: ExampleTable) -> list[str]:
    """Notes of the source, and of what was made of its rows."""
    notes = list(table.source.notes)
    if table.layout is not None and table.layout.shape is PREFERRED:
        notes.append(S_(f"The preferred responses of pairs are learned from (column {table.layout.columns['chosen']!r})."))
    return [*notes, *_own(table), *happened(table.counts), *_unused(table)]


def happened(counts: Counter[str]) -> list[str]:
    """One sentence for each kind of thing that happened."""
    return [
        text.format(n=f"{counts[kind]:,}", **{name: forms[counts[kind] != 1] for name, forms in NOUNS.items()})
        for kind, text in HAPPENED.items()
        if counts[kind]
    ]


def _own(table: ExampleTable) -> list[str]:
    """The columns of exported feedback that no setting names: what is read from them, or why nothing is."""
    if table.layout is None:
        return []
    columns, named = table.layout.columns, named_columns(table.data)
    read = [READ[part].format(column=columns[part]) for part in OWN if part in columns and part not in named]
    return [*read, *(S_(f"The column {part!r} is not used: {why}.") for part, why in table.unfit.items())]


def _unused(table: ExampleTable) -> list[str]:
    """Columns of which nothing is read; of one that is called as a part which must be named, the setting."""
    if table.layout is None:
        return []
    columns = table.source.columns
    may = [part for part in ONLY_NAMED if part in table.layout.shape.may and part not in table.layout.columns and part in columns]
    notes = [S_(f"The column {part!r} is not used; name it in {setting_of(part)} to use it.") for part in may]
    return [*notes, *unused_note(columns, [*table.layout.columns.values(), *may, *table.unfit])]
