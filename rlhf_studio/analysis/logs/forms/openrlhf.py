"""OpenRLHF: the table ``train/generated_samples`` of its Weights & Biases logger, as wandb writes it on disk (OpenRLHF 0.11.2).

It has no other file of rollouts. The table has one sample of each step, prompt and response in one text, and each file all rows so far:
rows of steps that came before are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlhf_studio.analysis.logs.forms.form import Form, Reading, Record
from rlhf_studio.analysis.logs.shape import LogFields
from rlhf_studio.language import S_

COLUMNS = ["global_step", "text", "reward"]
ONE_TEXT = S_("The table has one sample of each step, with prompt and response in one text: the prompt is unknown.")


def _translate(records: Sequence[Record], reading: Reading) -> Iterator[tuple[int, LogFields]]:
    reading.note(ONE_TEXT)
    for number, record in enumerate(records):
        for row in record["data"] if isinstance(record["data"], list) else []:
            named = dict(zip(record["columns"], row, strict=False))
            step = named.get("global_step")
            if isinstance(step, int) and step <= reading.memory.get("last", -1):
                continue
            reading.memory["last"] = step if isinstance(step, int) else reading.memory.get("last", -1)
            yield number, {"step": step, "prompt": "", "reward": named.get("reward"), **reading.tokens_of(named.get("text"))}


class _Table(Form):
    def missing(self, record: Record) -> list[str]:
        """As of any form; the columns count too."""
        columns = record.get("columns")
        return super().missing(record) or [name for name in COLUMNS if not isinstance(columns, list) or name not in columns]


FORM = _Table(
    "OpenRLHF",
    S_("OpenRLHF's table of samples"),
    ("columns", "data"),
    _translate,
    {"step": "global_step", "response": "text"},
)
