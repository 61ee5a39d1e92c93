"""Which form a record has; and of a record that has none, what it looks like and the smallest change that would make it readable."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from rlhf_studio.analysis.logs.forms import FORMS, board
from rlhf_studio.analysis.logs.forms.form import Form, Record
from rlhf_studio.analysis.logs.line import plain_name
from rlhf_studio.analysis.logs.shape import OTHER_NAMES
from rlhf_studio.language import S_

NEEDED = S_("step, prompt, response and reward")
MOST_SHOWN = 12  # names of fields


def form_of(record: Record) -> Form | None:
    """The form of a record; None where it has none, and for texts that are nearer to another form with a field renamed."""
    form = next((form for form in FORMS if not form.missing(record)), None)
    if form is not board.FORM or "kind" in record or not board.TOKENS.isdisjoint(record):
        return form
    return form if max(FORMS, key=lambda other: _nearness(other, record)) is form else None


def what_is_wrong(record: Record) -> str:
    """One sentence about a record that has no form."""
    if isinstance(record.get("columns"), list) and "data" in record:
        columns = _listed(record["columns"])
        return S_(
            f"it looks like a table of Weights & Biases, but has the columns {columns} where global_step, text and reward are expected"
        )
    if record and all(isinstance(value, int | float) for value in record.values()):
        example = "{'kind': 'step', 'step': 1, 'metrics': {…}}"
        return S_(f"it looks like metrics without responses ({_listed(record)}); for curves alone, write them as {example}")
    form = max(FORMS, key=lambda form: _nearness(form, record))
    if _nearness(form, record) >= len(form.needs) / 2:
        return what_is_missing(form, record)
    names = ", ".join(form.name.partition(",")[0] for form in FORMS)
    return S_(f"its fields ({_listed(record)}) are of no form that is read ({names}); give each response {NEEDED}")


def what_is_missing(form: Form, record: Record) -> str:
    """What keeps a record from being of a form, and how to change that."""
    renamed = {need: other for need in form.missing(record) if (other := _other_name(form, need, record))}
    absent = [need for need in form.missing(record) if need not in renamed]
    what = S_(f"lacks {', '.join(absent)} (add them to every record)") if len(absent) > 1 else ""
    what = S_(f"has no {absent[0]} (add it to every record)") if len(absent) == 1 else what
    for need, other in reversed(renamed.items()):
        here = plain_name(other)
        rename = S_(f"has {here} where {need} is expected (rename it)")
        what = S_(f"has {here} where {need} is expected (rename it) and {what}") if what else rename
    return S_(f"it looks like {form.what}, but {what}")


def unreadable(start: bytes, problem: str) -> str:
    """One sentence about a file whose first line is no JSON object. ``start``: the file's first bytes."""
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return S_("it is written in UTF-16; write it in UTF-8 (iconv -f UTF-16 -t UTF-8 FILE > FILE.jsonl)")
    first = start.split(b"\n", 1)[0].strip()
    if first in (b"{", b"["):
        return S_("it looks like JSON over several lines; write each object in a line of its own (jq -c '.[]? // .' FILE > FILE.jsonl)")
    if first.startswith(b"["):
        return S_("it looks like one JSON list; write each of its objects in a line of its own (jq -c '.[]' FILE > FILE.jsonl)")
    if b"," in first and not first.startswith(b"{") and b"'" not in first:
        return S_(
            "it looks like a table with commas (CSV); write one JSON object in each line (pandas: to_json(orient='records', lines=True))"
        )
    return problem


def _nearness(form: Form, record: Record) -> float:
    """How many of a form's fields a record has; one that has another name counts nearly as much."""
    missing = form.missing(record)
    there = [need for need in form.needs if need not in missing and (need in record or f"{need}_tokens" in record)]
    return len(there) + 0.9 * sum(bool(_other_name(form, need, record)) for need in missing)


def _other_name(form: Form, need: str, record: Record) -> str:
    """The field of a record that a person most likely meant by a field of the form; empty for none."""
    ours = next((name for name, theirs in form.names.items() if theirs == need), need)
    meaning = {ours, *OTHER_NAMES.get(ours, ())} - {need}
    free = [name for name in record if name not in form.needs]
    return next((name for name in free if name.lower() in meaning), "") or next(iter(get_close_matches(need, free, 1, 0.85)), "")


def _listed(names: Any) -> str:
    shown: Iterator[str] = (plain_name(str(name)) for name in names)
    listed = list(shown)
    return ", ".join(listed[:MOST_SHOWN]) + (" …" if len(listed) > MOST_SHOWN else "")
