"""Models and datasets on the Hugging Face hub, by words. The one list that asks the network."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Literal

from rlhf_studio.config import StageConfig
from rlhf_studio.inputs.choices.choice import FROM_HUB, Choice, NotOffered
from rlhf_studio.inputs.choices.data import settings_of_source
from rlhf_studio.inputs.error_text import first_line
from rlhf_studio.inputs.models.files import network_error
from rlhf_studio.language import N_, _
from rlhf_studio.units import short_count

MOST = 20
SECONDS = 15.0  # to wait for an answer
LONGEST = 100  # characters of the words
Kind = Literal["model", "reward", "data"]
_TASK: dict[Kind, str] = {"model": "text-generation", "reward": "text-classification"}
_HERE = N_("What is on this disk can be chosen all the same.")
_EXPANDED: Any = ["downloads", "tags", "gated", "safetensors"]


def search_hub(words: str, kind: Kind, base: StageConfig, api: Any = None) -> list[Choice]:
    """What the hub has for the stage of ``base``, the most downloaded first. Raises :class:`NotOffered` where it cannot be asked."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    if not words.strip() or len(words) > LONGEST:
        raise NotOffered(_("Type a few words to search for, at most {longest} characters.").format(longest=LONGEST))
    api = api or HfApi(token=False if os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN") else None)
    try:
        return _in_time(lambda: _asked(api, words.strip(), kind, base))
    except OfflineModeIsEnabled:
        raise NotOffered(
            _("The hub is not asked: this machine is set to work offline (HF_HUB_OFFLINE). {here}").format(here=_(_HERE))
        ) from None
    except (HfHubHTTPError, OSError, network_error()) as error:
        reason = first_line(error, longest=120)
        raise NotOffered(_("The Hugging Face hub cannot be reached ({reason}). {here}").format(reason=reason, here=_(_HERE))) from None


def _asked(api: Any, words: str, kind: Kind, base: StageConfig) -> list[Choice]:
    if kind == "data":
        return [_dataset(info, base) for info in api.list_datasets(search=words, sort="downloads", limit=MOST)]
    found: Iterable[Any] = api.list_models(
        search=words, pipeline_tag=_TASK[kind], filter="safetensors", sort="downloads", limit=MOST, expand=_EXPANDED
    )
    return [_model(info, kind) for info in found]


def _in_time(ask: Callable[[], list[Choice]]) -> list[Choice]:
    """What ``ask`` gives or raises; TimeoutError, an OSError, after :data:`SECONDS`: the hub's client waits without end."""
    answers: SimpleQueue[list[Choice] | Exception] = SimpleQueue()

    def work() -> None:
        try:
            answers.put(ask())
        except Exception as error:  # noqa: BLE001  # raised again by whoever waits
            answers.put(error)

    Thread(target=work, daemon=True, name="hub search").start()
    try:
        answer = answers.get(timeout=SECONDS)
    except Empty:
        raise TimeoutError(_("no answer within {seconds:g} seconds").format(seconds=SECONDS)) from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _model(info: Any, kind: Kind) -> Choice:
    weights = getattr(getattr(info, "safetensors", None), "total", None)
    size = _("{count} weights").format(count=short_count(weights)) if isinstance(weights, int) and weights else ""
    gated = _("its terms must be accepted first") if getattr(info, "gated", False) else ""
    components = [{"kind": "reward_model", "name": "", "weight": 1.0, "model": info.id}]
    settings = {"model.policy": info.id, "model.revision": "main"} if kind == "model" else {"reward.components": components}
    detail = ", ".join(filter(None, (_downloads(info), gated)))
    return Choice(settings, info.id, size, detail, download=_(FROM_HUB), licence=_licence(info))


def _dataset(info: Any, base: StageConfig) -> Choice:
    return Choice(settings_of_source(base, info.id), info.id, detail=_downloads(info), download=_(FROM_HUB), licence=_licence(info))


def _downloads(info: Any) -> str:
    count = getattr(info, "downloads", None)
    return _("{count:,} downloads").format(count=count) if isinstance(count, int) else ""


def _licence(info: Any) -> str:
    tags = getattr(info, "tags", None) or []
    return next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), "")
