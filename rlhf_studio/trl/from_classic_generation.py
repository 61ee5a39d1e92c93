"""What was given to ``generate`` in the step API of TRL 0.11: each keyword becomes one of our settings, or a line says why not."""

from __future__ import annotations

import math
from typing import Any

from rlhf_studio.config.wording import shortened
from rlhf_studio.language import _
from rlhf_studio.trl.draft import Draft, wrong

NAME = "generation_kwargs"
NO_EFFECT = {
    "do_sample": True, "repetition_penalty": 1, "num_beams": 1, "num_beam_groups": 1, "num_return_sequences": 1, "no_repeat_ngram_size": 0,
    "length_penalty": 1, "typical_p": 1, "penalty_alpha": 0, "use_cache": True, "return_prompt": False, "remove_padding": True,
}  # fmt: skip
"""Keywords, each with the value at which it changes nothing here."""


def put_generation(draft: Draft) -> None:
    """Length, distribution and stop token; a line for each keyword that has no counterpart."""
    kwargs = keywords(draft, NAME)
    for name in ("max_new_tokens", "temperature", "top_k", "top_p"):
        if draft.given(name):
            kwargs[name] = draft.value(name)
    any_given = bool(kwargs)
    _put_length(draft, kwargs)
    _put_distribution(draft, kwargs, any_given)
    if "eos_token_id" in kwargs:
        _put_stop(draft, kwargs.pop("eos_token_id"))
    for name in ("min_new_tokens", "min_length"):
        least = _number(draft, kwargs, name)
        if least is not None and least > 0:
            draft.differ(f"{NAME}.{name}: {least:g} there; here a response may end at its first token")
    for name, value in kwargs.items():
        if name not in NO_EFFECT or value != NO_EFFECT[name]:
            written = shortened(value)
            why = draft.note(name) or _("only temperature, top_k and top_p shape what is sampled")
            about = _("{value}; {why}").format(value=written, why=why)
            draft.left_out.append(_("{name}: {sentence}").format(name=f"{NAME}.{name}", sentence=about))


def keywords(draft: Draft, name: str) -> dict[str, Any]:
    """A copy of a dictionary in the file, from which entries are taken one by one."""
    value = draft.value(name)
    if value not in (None, "") and not isinstance(value, dict):
        raise wrong(name, "a dictionary", value)
    return {str(key): entry for key, entry in (value or {}).items()}


def _number(draft: Draft, kwargs: dict[str, Any], name: str) -> float | None:
    """Take a number; None when it is missing or null."""
    value = kwargs.pop(name, None)
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value)):
        raise wrong(f"{NAME}.{name}", "a number", value)
    return value


def _put_length(draft: Draft, kwargs: dict[str, Any]) -> None:
    longest, whole_length = _number(draft, kwargs, "max_new_tokens"), _number(draft, kwargs, "max_length")
    if longest is not None:
        draft.put("generation.response_length", round(longest))
        if whole_length is not None:
            draft.left_out.append(
                _("{name}.max_length: {whole_length:g}; generate follows max_new_tokens").format(name=NAME, whole_length=whole_length)
            )
    elif whole_length is not None:
        draft.decide.append(
            _("generation.response_length: max_length {whole_length:g} counted the prompt too; write the most tokens of a response").format(
                whole_length=whole_length
            )
        )
    else:
        draft.decide.append(_("generation.response_length: how many tokens generate was allowed (max_new_tokens)"))


def _put_distribution(draft: Draft, kwargs: dict[str, Any], any_given: bool) -> None:
    temperature = _number(draft, kwargs, "temperature")
    draft.put("generation.temperature", 1.0 if temperature is None else temperature)
    if temperature not in (None, 1):
        draft.differ("temperature: TRL 0.11 scores without it; here log-probabilities are those at the temperature")
    if "top_k" in kwargs or "top_p" in kwargs:
        draft.put("generation.top_k", round(_number(draft, kwargs, "top_k") or 0))
        draft.put("generation.top_p", _number(draft, kwargs, "top_p") or 1.0)
    elif any_given:
        draft.decide.append(_("generation.top_k: generate kept the 50 likeliest tokens where top_k was left out; here all are kept"))


def _put_stop(draft: Draft, value: Any) -> None:
    """A token id; below 0 stands for a token that never comes, so that responses run to their full length."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, list) and value and all(type(token) is int and token >= 0 for token in value):
        draft.put("generation.stop_token", ", ".join(map(str, value)))
    elif isinstance(value, int) and not isinstance(value, bool):
        draft.put("generation.stop_token", "none" if value < 0 else str(value))
    else:
        draft.decide.append(
            _("generation.stop_token: eos_token_id was {value}; write eos, none or the id of one token").format(value=shortened(value))
        )
