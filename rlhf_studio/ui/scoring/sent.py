"""Checks what the pages that score a text send: the rewards or the reward model, the text, and the words to try."""

from __future__ import annotations

from typing import Any

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import ConfigError, Problem, parse_ppo
from rlhf_studio.config.stages import PROMPT_WRITING
from rlhf_studio.inputs.estimate.counts import parameters
from rlhf_studio.inputs.models.facts import check_causal_lm
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.models.reward_models import describe_reward_model
from rlhf_studio.language import _, told
from rlhf_studio.ui.form import nested
from rlhf_studio.ui.sent import QuestionRefused

LONGEST_TEXT = 20_000  # characters, of which the playground shows every token
LONGEST_TRIED = 50_000  # characters, for rewards that may read long texts
LONGEST_CANDIDATE = 60  # characters
MOST_CANDIDATES = 8
LONGEST_NAME = 4096
MOST_WEIGHTS_ON_A_CPU = 400_000_000  # of a model that answers a dozen prompts while a person waits
Json = dict[str, Any]


def model_of(sent: Json) -> tuple[str, str]:
    """The model that is named, and its label where it has several. Raises :class:`QuestionRefused`."""
    name, label = sent.get("model"), sent.get("label") or ""
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME:
        raise QuestionRefused(_("Name a reward model: a folder, a Hugging Face hub id, or bundled/world-reward."), "model")
    if not isinstance(label, str) or len(label) > 200:
        raise QuestionRefused(_("The label must be the name or number of one of the model's outputs."), "model")
    return name.strip(), label


def model_request(sent: Json) -> Json:
    """The playground's request to the process, without its number. Raises :class:`QuestionRefused`."""
    name, label = model_of(sent)
    texts = {}
    for part in ("prompt", "response"):
        text = sent.get(part)
        if text is not None and (not isinstance(text, str) or len(text) > LONGEST_TEXT):
            raise QuestionRefused(
                _("The {part} must be a text of at most {longest_text:,} characters.").format(part=part, longest_text=LONGEST_TEXT), part
            )
        texts[part] = None if text is None else text.encode("utf-8", "replace").decode()  # half of a surrogate pair cannot be encoded
    if texts["response"] is None:
        texts["prompt"] = None  # the model is only loaded
    elif not texts["response"].strip():
        raise QuestionRefused(_("Type a response: a text without one has nothing to score."), "response")
    else:
        texts["prompt"] = texts["prompt"] or ""
    try:
        description = describe_reward_model(name, label=label)
    except ModelError as error:
        message = str(error)
        begin = message[:1] if message.startswith(name) else message[:1].upper()  # a model's name keeps its case
        raise QuestionRefused(told(f"{begin}{message[1:]}."), "model") from None
    return {
        "op": "model",
        "model": name,
        "revision": "main",
        "label": label,
        "append_eos": description.append_eos,
        **texts,
        "candidates": _candidates(sent.get("candidates")),
        "words": sent.get("words") is not False,
        "stopped": sent.get("stopped") is not False,
    }


def _candidates(sent: Any) -> list[str]:
    texts = [] if sent is None else sent
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise QuestionRefused(_("The words to put in must be texts."), "candidates")
    words = list(dict.fromkeys(" ".join(text.encode("utf-8", "replace").decode().split()) for text in texts))
    words = [word for word in words if word]
    if len(words) > MOST_CANDIDATES or any(len(word) > LONGEST_CANDIDATE for word in words):
        raise QuestionRefused(
            _("Give at most {most_candidates} words to put in, each of at most {longest_candidate} characters.").format(
                most_candidates=MOST_CANDIDATES, longest_candidate=LONGEST_CANDIDATE
            ),
            "candidates",
        )
    return words


def rewards_request(sent: Json) -> Json:
    """The request of "Try it" to the process. Raises :class:`ConfigError` when the reward settings or a text cannot be used."""
    texts: dict[str, str | None] = {}
    for name in ("prompt", "response", "reference"):
        text = sent.get(name)
        if name == "reference" and text is None:
            texts[name] = None
            continue
        if not isinstance(text, str) or len(text) > LONGEST_TRIED:
            raise ConfigError(
                [
                    Problem(
                        "",
                        _("the {name} must be a text of at most {longest_tried:,} characters").format(
                            name=name, longest_tried=LONGEST_TRIED
                        ),
                    )
                ]
            )
        texts[name] = text
    config = trial_config(sent.get("values")).model_dump(mode="json")
    return {"op": "rewards", "config": config, **texts, "stopped": sent.get("stopped") is not False}


def spread_request(sent: Json) -> Json:
    """The request for a reward's scale and spread. Raises :class:`ConfigError` where rewards or data are not in order.

    The model answers only where that is cheap: where its weights are on this disk, and few.
    """
    given = nested(sent.get("values"))
    config = parse_ppo({name: value for name, value in given.items() if name in ("reward", "model", "generation", "engine", "data")})
    return {"op": "spread", "config": config.model_dump(mode="json"), "why_not": _why_no_answers(config)}


def _why_no_answers(config: RunConfig) -> str:
    """Why the model does not answer now, as the end of a sentence; empty where it does."""
    try:
        facts = check_causal_lm(config.model.policy, config.model.revision)
    except ModelError:
        return _("the model cannot be used yet")
    weights = parameters(facts)
    if facts.download_bytes:
        return _("the model is not on this disk yet")
    if weights is None or weights > MOST_WEIGHTS_ON_A_CPU:
        return _("answers of a model of this size would take minutes here")
    return ""


def trial_config(values: Any) -> RunConfig:
    """The settings that scoring needs: the rewards, and of the data how prompts are written. Other sections take their defaults when wrong.

    Raises :class:`ConfigError`.
    """
    sent = {name: value for name, value in nested(values).items() if name in ("reward", "model", "generation", "engine", "data")}
    if isinstance(sent.get("data"), dict):
        sent["data"] = {name: value for name, value in sent["data"].items() if name in PROMPT_WRITING}
    try:
        return parse_ppo(sent)
    except ConfigError as error:
        wrong = {problem.field.split(".")[0] for problem in error.problems} - {"reward", "data"}
        return parse_ppo({name: value for name, value in sent.items() if name not in wrong})
