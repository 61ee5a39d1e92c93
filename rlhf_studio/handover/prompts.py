"""The prompts of a run, as rows for another trainer: what its policy reads is the same there.

Where the data are chats the messages are handed over, and the other trainer writes them with the model's own template. Else it is the text
as the policy reads it, with its form around it and cut where the run cuts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from rlhf_studio.config import DataConfig, RunConfig
from rlhf_studio.inputs.chat import Messages, find_template
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.tokenizer_files import added_tokens
from rlhf_studio.inputs.prompts import PromptsError, read_prompts
from rlhf_studio.inputs.prompts.held_out import eval_error, eval_settings, same_source, set_aside
from rlhf_studio.inputs.prompts.messages import content_of, further
from rlhf_studio.inputs.prompts.prepare import Prepared, prepare
from rlhf_studio.inputs.prompts.read import nothing_left
from rlhf_studio.inputs.tokens import FileEncoder, load_encoder
from rlhf_studio.language import _


@dataclass(frozen=True)
class Row:
    """One prompt: its text or its messages, and the reference text of its row."""

    text: str
    messages: list[dict[str, Any]] | None
    reference: str


@dataclass(frozen=True)
class HandedPrompts:
    """Prompts to train on, those held out, and sentences about them.

    ``start``: the text of the token that the policy's tokenizer puts in front of every text, empty for none. Both engines encode prompts
    without it. A chat has it from its template.
    """

    train: list[Row]
    held_out: list[Row]
    notes: list[str] = field(default_factory=list)
    start: str = ""


def prompts_of(config: RunConfig, policy: ModelFacts) -> HandedPrompts:
    """Read the prompts as the engine would. Raises :class:`PromptsError`, also where the policy's tokenizer cannot be read here."""
    encoder = load_encoder(policy.tokenizer)
    if encoder is None:
        message = "the policy's tokenizer.json is needed to cut and count prompts, and is not on this machine; download the model first"
        raise PromptsError("model.policy", message)
    prepared = _prepared(config, config.data, policy, encoder)
    notes = prepared.notes(config.data)
    if config.data.chat_template and (cut := prepared.cut_note(config.data)):
        long = sum(length > config.data.max_prompt_tokens for length in prepared.lengths)
        notes = [note for note in notes if note not in cut]
        notes.append(
            _("{long:,} chats are longer than data.max_prompt_tokens: verl leaves them out, OpenRLHF cuts off their beginning.").format(
                long=long
            )
        )
    if lost := sorted({key for chat in prepared.chats or [] for key in further(chat)}):
        notes.append(_("Of the messages, {lost} is not handed over: role and content alone are.").format(lost=", ".join(lost)))
    start = "" if config.data.chat_template else _start(policy, encoder)
    named = eval_settings(config.data)
    if named is None:
        aside = set(set_aside(prepared.ids, config.data.eval_share, config.engine.seed))
        rows = _rows(prepared, config.data, encoder)
        train = [row for index, row in enumerate(rows) if index not in aside]
        return HandedPrompts(train, [rows[index] for index in sorted(aside)], notes, start)
    try:
        held_out = [] if same_source(config.data) else _rows(_prepared(config, named, policy, encoder), named, encoder)
    except PromptsError as error:
        raise eval_error(error) from None
    return HandedPrompts(_rows(prepared, config.data, encoder), held_out, notes, start)


def repeated(prompts: HandedPrompts, least: int) -> HandedPrompts:
    """The same prompts, written several times over where there are fewer than a step takes: other trainers begin no step with fewer."""
    times = -(-least // len(prompts.train))
    if times < 2:
        return prompts
    note = _("There are {train:,} prompts and a step takes {least:,}: they are written {times} times over.").format(
        train=len(prompts.train), least=least, times=times
    )
    return replace(prompts, train=prompts.train * times, notes=[*prompts.notes, note])


def in_passes(rows: list[Row], count: int, seed: int | None) -> list[Row]:
    """So many rows, in passes over all of them; each pass in an order of its own by ``seed``, or in theirs for None."""
    random, drawn = Random(seed), list[Row]()
    while len(drawn) < count:
        drawn += rows if seed is None else random.sample(rows, len(rows))
    return drawn[:count]


def verl_rows(rows: list[Row], source: str) -> list[dict[str, Any]]:
    """Rows of verl's parquet. ``source`` names the data in its metrics."""
    return [
        {
            "data_source": source,
            "prompt": row.messages or [{"role": "user", "content": row.text}],
            "ability": "",
            "reward_model": {"style": "rule", "ground_truth": row.reference},
            "extra_info": {"index": index, "prompt": row.text},
        }
        for index, row in enumerate(rows)
    ]


def write_parquet(rows: list[dict[str, Any]], path: Path) -> None:
    """One file, with one row group."""
    import pyarrow  # comes with datasets; here, because only this needs it
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)


def write_lines(rows: list[Row], path: Path, start: str) -> None:
    """OpenRLHF's JSON Lines: ``prompt`` (a text, or messages), ``reference``, ``datasource``. ``start`` as in :class:`HandedPrompts`."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            line = {"prompt": row.messages or start + row.text, "reference": row.reference, "datasource": "prompts"}
            file.write(json.dumps(line, ensure_ascii=True) + "\n")


def _start(policy: ModelFacts, encoder: FileEncoder) -> str:
    texts = {token: text for text, token in added_tokens(policy.tokenizer).items()} if policy.tokenizer else {}
    return next((texts[token] for token in encoder.starts if token in texts), "")


def _prepared(config: RunConfig, data: DataConfig, policy: ModelFacts, encoder: FileEncoder) -> Prepared:
    chat = find_template(policy.tokenizer_files) if data.chat_template else None
    prepared = prepare(read_prompts(data), data, encoder, chat, config.engine.seed)
    if not prepared.ids:
        raise nothing_left(data, prepared.left_out)
    return prepared


def _rows(prepared: Prepared, data: DataConfig, encoder: FileEncoder) -> list[Row]:
    """A chat that the run would cut loses its beginning there; other trainers leave such a chat out."""
    references = prepared.references or [""] * len(prepared.ids)
    chats: Sequence[Messages | None] = prepared.chats or [None] * len(prepared.ids)
    rows = []
    for text, ids, length, reference, chat in zip(prepared.texts, prepared.ids, prepared.lengths, references, chats, strict=True):
        shorter = len(ids) < length and data.overlong == "cut_left" and chat is None and not data.query_tokens_max
        rows.append(Row(encoder.decode(ids[int(ids[0] in encoder.starts) :]) if shorter else text, _plain(chat), reference or ""))
    return rows


def _plain(chat: Messages | None) -> list[dict[str, Any]] | None:
    """Messages with a role and a text each, as both engines take them."""
    return None if chat is None else [{"role": str(message["role"]), "content": content_of(message)} for message in chat]
