"""What the picker's script may ask. Everything here is for operators: it tells what lies on this machine."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gradio as gr

from rlhf_studio.config import NOTHING_ALLOWED, Permissions, RewardModelReward, StageConfig
from rlhf_studio.config.recipes import list_recipes
from rlhf_studio.inputs.choices import uploads
from rlhf_studio.inputs.choices.browsing import NOWHERE, Roots, Wanted
from rlhf_studio.inputs.choices.choice import Choice, ChoiceGroup, NotOffered
from rlhf_studio.inputs.choices.data import data_groups, settings_of_source
from rlhf_studio.inputs.choices.hub_cache import CachedRepo, cached
from rlhf_studio.inputs.choices.hub_search import Kind, search_hub
from rlhf_studio.inputs.choices.models import USUAL_EXAMPLE, USUAL_PROMPT, ModelChoices
from rlhf_studio.inputs.choices.rewards import reward_groups
from rlhf_studio.inputs.choices.used import UsedRun, used_runs
from rlhf_studio.inputs.estimate.device import find_device
from rlhf_studio.inputs.models.files import ModelError
from rlhf_studio.inputs.models.learner import remembered_learner
from rlhf_studio.inputs.preflight.known import has_chats
from rlhf_studio.language import N_, _, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.form import describe_component, kinds_by_group
from rlhf_studio.ui.problems import plain
from rlhf_studio.ui.roles import Role, callable_by
from rlhf_studio.ui.sent import member

Json = dict[str, Any]
MOST_PART = 600_000  # bytes of a part of an uploaded file; also in assets/train/picker/finder.js
LONGEST_NAME = 4096
RULES = {
    "Your own": N_("Your own function or server"),
    "Rules": N_("Rules"),
    "Against a reference": N_("Against a reference"),
    "Models": N_("More models"),
}
"""The groups of kinds of reward, and what they are called beside single reward models."""


class Picker:
    """The picker's answers.

    Args:
        access: only operators are answered.
        roots: the folders that may be looked into.
        permissions: whose files and servers rewards may use.
        scan: gives what the hub's cache holds; replaced in tests.
        search: asks the hub; replaced in tests.
    """

    def __init__(
        self,
        workspace: Workspace,
        access: Access,
        roots: Roots = NOWHERE,
        permissions: Permissions = NOTHING_ALLOWED,
        scan: Callable[[Any], list[CachedRepo]] = cached,
        search: Callable[[str, Kind, StageConfig], list[Choice]] = search_hub,
    ) -> None:
        self._workspace, self._access, self._roots, self._permissions = workspace, access, roots, permissions
        self._scan, self._search = scan, search
        self._bases = {recipe.stage: recipe.config for recipe in list_recipes() if recipe.asks}

    def functions(self) -> list[Callable[..., Any]]:
        """What the Train page's script may ask."""
        return [self.pick_choices, self.pick_model, self.pick_folder, self.pick_upload, self.pick_search]

    @callable_by(Role.OPERATOR)
    def pick_choices(self, data: Any, request: gr.Request) -> Json:
        """The choices of ``what`` (model, data or reward) for a ``stage``.

        Gives ``groups``, a ``note`` on their figures, whether one may ``browse``, and a ``problem``, which is empty where there is none.
        """
        self._access.require_operator(request, data)
        base, what = self._base(data), member(data, "what")
        try:
            runs = used_runs(self._workspace)
        except StoreError as error:
            return {
                "groups": [],
                "note": "",
                "browse": bool(self._roots.folders),
                "problem": _("The runs cannot be read: {error}").format(error=told(error)),
            }
        groups, note = self._groups(what if isinstance(what, str) else "", base, runs)
        return {"groups": [group.as_json() for group in groups], "note": note, "browse": bool(self._roots.folders), "problem": ""}

    def _groups(self, what: str, base: StageConfig, runs: list[UsedRun]) -> tuple[list[ChoiceGroup], str]:
        if what == "data":
            return data_groups(base, runs, self._scan("dataset"), self._workspace.root.resolve() / uploads.FOLDER), ""
        if what == "reward":
            return [*reward_groups(runs, self._scan("model")), *self._rules()], ""
        device = find_device(base.engine)
        texts = (
            _("prompts of {usual_prompt} tokens").format(usual_prompt=USUAL_PROMPT)
            if base.stage == "ppo"
            else _("examples of {usual_example} tokens").format(usual_example=USUAL_EXAMPLE)
        )
        note = _("Memory is for {texts} and settings that fit the model; the last step tells it for your own data.").format(texts=texts)
        return ModelChoices(base, device).groups(runs, self._scan("model")), note

    def _rules(self) -> list[ChoiceGroup]:
        """The kinds of reward by their groups, and the files of one's own that the app was started with. A single reward model is in the
        groups before."""
        kinds = [describe_component(kind, self._permissions) for kind in kinds_by_group() if kind is not RewardModelReward]
        groups = {title: ChoiceGroup(_(shown)) for title, shown in RULES.items()}
        for kind in kinds:
            files = self._permissions.files if kind["kind"] == "python" else ()
            own = [({**kind["defaults"], "file": file}, Path(file).name, _("your Python file, {file}").format(file=file)) for file in files]
            for component, title, about in own or [(kind["defaults"], kind["title"], kind["help"])]:
                groups[kind["group"]].choices.append(Choice({"reward.components": [component]}, title, detail=about))
        return list(groups.values())

    @callable_by(Role.OPERATOR)
    def pick_model(self, data: Any, request: gr.Request) -> Json:
        """What is known of a model that was named: ``sentence`` and ``size`` (its weights in words), or ``problem``."""
        self._access.require_operator(request, data)
        name, base = member(data, "model"), self._base(data)
        if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME:
            return {"sentence": "", "size": "", "problem": _("Name a folder or a hub id.")}
        try:
            facts = remembered_learner(base, name)
        except ModelError as error:
            return {"sentence": "", "size": "", "problem": told(f"{plain(str(error), {name.split()[0]})}.")}
        choice = ModelChoices(base, find_device(base.engine)).choice(name, name, "", facts)
        known = [
            facts.model_type,
            choice.size,
            _("reads up to {max_positions:,} tokens").format(max_positions=facts.max_positions) if facts.max_positions else "",
            _("writes chats") if has_chats(facts) else _("continues texts"),
            choice.needs,
            choice.download,
        ]
        return {"sentence": ", ".join(filter(None, known)), "size": choice.size, "problem": ""}

    @callable_by(Role.OPERATOR)
    def pick_folder(self, data: Any, request: gr.Request) -> Json:
        """What is in a folder (``path``; empty for the roots), as :meth:`Roots.listing`; or ``problem``."""
        self._access.require_operator(request, data)
        path = member(data, "path")
        wanted: Wanted = "data" if member(data, "what") == "data" else "model"
        try:
            return {**self._roots.listing(path if isinstance(path, str) and len(path) <= LONGEST_NAME else "", wanted), "problem": ""}
        except NotOffered as error:
            return {"problem": told(error)}

    @callable_by(Role.OPERATOR)
    def pick_upload(self, data: Any, request: gr.Request) -> Json:
        """Take a part of a file (``key``, ``name``, ``offset``, ``part`` in base64, ``last``); gives ``next``, the place of the next part,
        at the end ``settings`` that name the file, or ``problem``."""
        self._access.require_operator(request, data)
        key, name, offset, sent = (member(data, part) for part in ("key", "name", "offset", "part"))
        if not isinstance(key, str) or not isinstance(name, str) or type(offset) is not int or offset < 0 or not isinstance(sent, str):
            return {"problem": _("This is no part of a file: reload the page.")}
        try:
            part = base64.b64decode(sent, validate=True)
            if len(part) > MOST_PART:
                raise NotOffered(_("A part has {most_part:,} bytes at most.").format(most_part=MOST_PART))
            path = uploads.add_part(self._workspace.root.resolve(), key, name, offset, part, last=member(data, "last") is True)
        except NotOffered as error:
            return {"problem": told(error)}
        except ValueError:  # no base64, or no ASCII
            return {"problem": _("This part of the file did not arrive whole: upload it again.")}
        except OSError as error:
            return {"problem": _("The file could not be written: {strerror}.").format(strerror=error.strerror or error)}
        settings = {} if path is None else settings_of_source(self._base(data), str(path))
        return {"next": offset + len(part), "settings": settings, "problem": ""}

    @callable_by(Role.OPERATOR)
    def pick_search(self, data: Any, request: gr.Request) -> Json:
        """What the hub has for ``words``: ``choices`` and ``seconds``; or ``problem``, also where there is no network."""
        self._access.require_operator(request, data)
        words, what = member(data, "words"), member(data, "what")
        kind: Kind = "data" if what == "data" else "reward" if what == "reward" else "model"
        begun = time.monotonic()
        try:
            choices = self._search(words if isinstance(words, str) else "", kind, self._base(data))
        except NotOffered as error:
            return {"choices": [], "problem": told(error)}
        return {"choices": [asdict(choice) for choice in choices], "seconds": round(time.monotonic() - begun, 1), "problem": ""}

    def _base(self, data: Any) -> StageConfig:
        stage = member(data, "stage")
        return next((config for known, config in self._bases.items() if known == stage), self._bases["ppo"])
