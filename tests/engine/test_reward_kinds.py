"""Every kind of reward component is whole: registered once, with a title, a place in the form, and something that scores."""

from __future__ import annotations

import subprocess
import sys

from rlhf_studio.config import REWARD_KINDS, Component
from rlhf_studio.engine.rewards.registry import builders


def every_class(model: type[Component]) -> set[type[Component]]:
    return {model}.union(*(every_class(child) for child in model.__subclasses__()))


def test_every_kind_has_something_that_scores_and_nothing_else_has() -> None:
    assert set(builders()) == set(REWARD_KINDS.values())


def test_no_kind_was_forgotten_where_kinds_are_registered() -> None:
    """A class with a title is a whole kind; the others are what several kinds share."""
    whole = {model for model in every_class(Component) if hasattr(model, "title")}
    assert whole == set(REWARD_KINDS.values())


def test_settings_and_checks_load_no_library_that_they_do_not_need() -> None:
    check = (
        "import sys; import rlhf_studio.inputs.checks.rewards; assert not {'torch', 'gradio', 'httpx', 'transformers'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
