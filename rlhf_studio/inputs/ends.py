"""Which tokens end what a model writes: what its files list, the tokenizer's end token, and how its chat template closes an answer.

A chat model often has several. Llama 3's tokenizer names ``<|end_of_text|>`` as its end token, its template closes an answer with
``<|eot_id|>``, and ``generation_config.json`` lists both. A run that stops only at the first never sees such a model stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rlhf_studio.config import GenerationConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.inputs.chat import ChatError, ChatTemplate, render_chats
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.tokenizer_files import added_tokens, read_end
from rlhf_studio.language import S_

SETTING = "generation.stop_token"
ANSWER = "Forty-two"
"""What the assistant says in the chat that is written to see how the template closes an answer."""


@dataclass(frozen=True)
class Ends:
    """The tokens that end what a model writes.

    Attributes:
        ids: all of them, ascending; empty when the model names none.
        end: the one that closes an answer in training: the chat template's where one is in use, else the tokenizer's. None without any.
        of_tokenizer: the tokenizer's end token; None without one.
        sources: what names them, in words.
        tokens: the texts of all tokens that the tokenizer keeps whole -> their ids.
    """

    ids: tuple[int, ...]
    end: int | None
    of_tokenizer: int | None
    sources: tuple[str, ...]
    tokens: Mapping[str, int]

    def chosen(self, settings: GenerationConfig, vocabulary: int | None) -> tuple[int, ...]:
        """The ids at which these settings end a response, ascending; empty where only its length does.

        ``vocabulary``: how many tokens the model has weights for; None when unknown. Raises :class:`ConfigError` for a token that the
        model does not have.
        """
        ids: set[int] = set()
        for stop in settings.stop_tokens:
            if stop == "eos":
                if not self.ids:
                    raise _refused("the tokenizer has no end token; use none or a token id")
                ids.update(self.ids)
            elif stop.isdecimal():
                if vocabulary is not None and int(stop) >= vocabulary:
                    raise _refused(f"there is no token {stop}; the model has tokens 0 to {vocabulary - 1:,}")
                ids.add(int(stop))
            elif stop in self.tokens:
                ids.add(self.tokens[stop])
            else:
                raise _refused(f"the tokenizer keeps no token {stop} whole; use the text of a special token, or a token id")
        return tuple(sorted(ids))

    def sentence(self, settings: GenerationConfig, ids: tuple[int, ...]) -> str:
        """A sentence for people: where an answer ends with these settings. ``ids``: what :meth:`chosen` gives for them."""
        if not ids:
            return S_(f"No token ends an answer, only its length does ({SETTING}).")
        texts = {number: text for text, number in self.tokens.items()}
        first = [self.end] if self.end in ids else []
        named = [f"{texts[token]} ({token})" if token in texts else str(token) for token in [*first, *sorted(set(ids) - set(first))]]
        sources = [*self.sources] if "eos" in settings.stop_tokens else []
        sources += [SETTING] if settings.stop_tokens != ("eos",) else []
        sentence = S_(f"An answer ends at {' or '.join(named)}: {' and '.join(sources)}.")
        if self.end is None or first:
            return sentence
        own = f"{texts[self.end]} ({self.end})" if self.end in texts else str(self.end)
        return S_(f"{sentence} The model closes its answers with {own}, at which this run does not stop.")


def _refused(message: str) -> ConfigError:
    return ConfigError([Problem(SETTING, message)])


def find_ends(tokens: Mapping[str, int], end: int | None, lists: Mapping[str, Any], chat: ChatTemplate | None) -> Ends:
    """The end tokens of a model.

    Args:
        tokens: the texts of all tokens that the tokenizer keeps whole -> their ids.
        end: the tokenizer's end token.
        lists: a name from :data:`END_LISTS` -> the ``eos_token_id`` there: an id, several, or None.
        chat: the template, where one is in use.
    """
    named: dict[str, set[int]] = {S_("the tokenizer's end token"): {end} if end is not None else set()}
    known = {*tokens.values(), end} - {None}
    for name, value in lists.items():
        # An id that is an ordinary token is the default of a kind of model, which nobody chose: Llama's is 2.
        named[name] = {token for token in (value if isinstance(value, list | tuple) else [value]) if type(token) is int and token in known}
    closing = tokens.get(turn_end(chat)) if chat is not None else None
    ids, sources = set[int](), list[str]()
    for name, own in sorted(named.items(), key=lambda item: -len(item[1])):  # the longest list first; what adds nothing is not named
        if own - ids:
            sources.append(name)
            ids |= own
    if closing is not None:
        sources.append(S_("the chat template"))
        ids.add(closing)
    last = closing if closing is not None else end if end is not None else min(ids, default=None)
    return Ends(tuple(sorted(ids)), last, end, tuple(sources), tokens)


def ends_of_files(facts: ModelFacts, chat: ChatTemplate | None) -> Ends | None:
    """As :func:`find_ends`, by a model's small files alone; None without a tokenizer.json."""
    if facts.tokenizer is None or facts.tokenizer_files is None:
        return None
    tokens = added_tokens(facts.tokenizer)
    return find_ends(tokens, tokens.get(read_end(facts.tokenizer_files)), dict(facts.end_lists), chat)


@lru_cache(maxsize=64)
def turn_end(chat: ChatTemplate) -> str:
    """The text of the token with which a template closes an answer: the first behind it that the tokenizer keeps whole.

    Empty where the template closes an answer with no such token, or cannot write a short chat.
    """
    try:
        (text,) = render_chats(chat, [[{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": ANSWER}]], answered=True)
    except ChatError:
        return ""
    behind = text.rpartition(ANSWER)[2] if ANSWER in text else ""
    candidates = [(behind.find(token), -len(token), token) for token in chat.kept_whole if token.strip() and token in behind]
    return min(candidates, default=(0, 0, ""))[2]


def saved_sampling(known: Mapping[str, Any], settings: GenerationConfig, stops: tuple[int, ...]) -> dict[str, Any]:
    """The contents of a ``generation_config.json`` with which transformers samples as a run does.

    ``known``: the contents so far. Only the tokens that begin and pad a text stay; a repetition penalty, for example, is not the run's.
    """
    special_tokens = {name: known[name] for name in ("bos_token_id", "pad_token_id", "transformers_version") if known.get(name) is not None}
    stopping: dict[str, Any] = {"eos_token_id": stops[0] if len(stops) == 1 else list(stops)} if stops else {}
    return (
        special_tokens
        | stopping
        | {
            "_from_model_config": False,
            "do_sample": True,
            "temperature": settings.temperature,
            "top_k": settings.top_k,
            "top_p": settings.top_p,
            "max_new_tokens": settings.response_length,
        }
    )
