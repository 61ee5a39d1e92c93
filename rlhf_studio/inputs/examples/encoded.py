"""Examples as token ids, ready for training."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rlhf_studio.config import DemonstrationsConfig, PairsConfig
from rlhf_studio.inputs.examples.rows import Demonstration, Pair, left_out_note
from rlhf_studio.inputs.prompts.messages import Fields
from rlhf_studio.inputs.prompts.prepare import special_note
from rlhf_studio.language import S_

IGNORED = -100
"""Label of a token that does not count."""


@dataclass(frozen=True, slots=True)
class EncodedExample:
    """One text, L tokens: ``labels`` is the id where the token counts, else :data:`IGNORED`."""

    ids: tuple[int, ...]
    labels: tuple[int, ...]

    @property
    def counted(self) -> int:
        """Tokens that count; the first token of a text never does, since nothing predicts it."""
        return sum(label != IGNORED for label in self.labels[1:])


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """Token ids of a prompt and of two responses to it; the rest is as in :class:`rlhf_studio.inputs.examples.Pair`."""

    prompt: tuple[int, ...]
    chosen: tuple[int, ...]
    rejected: tuple[int, ...]
    margin: float | None = None
    weight: float = 1.0
    tie: bool = False
    group: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Length:
    """Tokens of one example before anything is cut; ``rejected`` is 0 for a demonstration."""

    prompt: int
    chosen: int
    rejected: int = 0

    @property
    def longest(self) -> int:
        """Tokens of the prompt with the longer response."""
        return self.prompt + max(self.chosen, self.rejected)


@dataclass(frozen=True)
class PreparedDemonstrations:
    """Demonstrations as training reads them.

    Attributes:
        items: the examples.
        rows: the demonstration that each item comes from; a long text that was divided gives several items.
        lengths: tokens of each demonstration that is left, before anything is cut.
        texts: prompt (or the front of a chat) and response of each demonstration that is left, as they were encoded.
        left_out: demonstrations left out here, by reason.
        counts: what else happened, by kind: ``cut``, ``divided``, ``spaced``, ``stuck``, ``special``, ``unmarked_end``; ``followed`` are
            all responses that were looked at for being spaced or stuck.
        fields: what chats say beside role and content.
    """

    items: list[EncodedExample] = field(default_factory=list)
    rows: list[Demonstration] = field(default_factory=list)
    lengths: list[Length] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    fields: Fields = field(default_factory=Fields)

    def notes(self, data: DemonstrationsConfig, before: Counter[str]) -> list[str]:
        """One sentence each for what was left out here and ``before``, and for what was changed."""
        out = left_out_note(before + self.left_out, len(self.lengths), data, "demonstrations")
        return [*out, *self.fields.notes(), *_changes(self.counts, len(self.lengths), data)]


@dataclass(frozen=True)
class PreparedPairs:
    """Pairs as training reads them; attributes as in :class:`PreparedDemonstrations`, one entry per pair in each list.

    ``texts`` holds the prompt, the chosen and the rejected response.
    """

    items: list[EncodedPair] = field(default_factory=list)
    rows: list[Pair] = field(default_factory=list)
    lengths: list[Length] = field(default_factory=list)
    texts: list[tuple[str, str, str]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    fields: Fields = field(default_factory=Fields)

    def notes(self, data: PairsConfig, before: Counter[str]) -> list[str]:
        """One sentence each for what was left out here and ``before``, and for what was changed."""
        out = left_out_note(before + self.left_out, len(self.lengths), data, "pairs")
        return [*out, *self.fields.notes(), *_changes(self.counts, len(self.lengths), data)]


def _changes(counts: Counter[str], total: int, data: DemonstrationsConfig | PairsConfig) -> list[str]:
    sentences = {
        "cut": S_(f"{counts['cut']:,} of {total:,} have more than {data.max_tokens:,} tokens and lost the beginning of their prompt."),
        "divided": S_(f"{counts['divided']:,} of {total:,} texts have more than {data.max_tokens:,} tokens and were divided."),
        "silent": S_(
            f"Of chats with other answers, {counts['silent']:,} empty {'answer is' if counts['silent'] == 1 else 'answers are'} not "
            "learned: there is no text, or a call in its place that is not written."
        ),
        "spaced": S_(f"{counts['spaced']:,} responses got a space in front, which would else stick to the form of their prompt."),
        "stuck": S_(
            f"Nothing stands between the prompt and {counts['stuck']:,} of {counts['followed']:,} responses, not even a space; "
            "data.prompt_format can say what does."
        ),
        "unmarked_end": S_(
            f"The chat template's {{% generation %}} marks leave out the token that ends an answer, in "
            f"{counts['unmarked_end']:,} of {total:,}. It is learned as well, else the model would never stop."
        ),
    }
    noun = "demonstrations" if isinstance(data, DemonstrationsConfig) else "pairs"
    special = special_note(counts["special"], total, noun)
    return [*special, *(sentence for kind, sentence in sentences.items() if counts[kind])]
