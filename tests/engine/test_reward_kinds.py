"""Every kind of reward component is whole: registered once, with a title, a place in the form, and something that scores."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from rlhf_studio.config import REWARD_KINDS, Component, Group
from rlhf_studio.engine.rewards import kinds
from rlhf_studio.engine.rewards.registry import builders


def every_class(model: type[Component]) -> set[type[Component]]:
    return {model}.union(*(every_class(child) for child in model.__subclasses__()))


def test_every_kind_has_something_that_scores_and_nothing_else_has() -> None:
    assert set(builders()) == set(REWARD_KINDS.values())


def test_no_kind_was_forgotten_where_kinds_are_registered() -> None:
    """A class with a title is a whole kind; the others are what several kinds share."""
    whole = {model for model in every_class(Component) if hasattr(model, "title")}
    assert whole == set(REWARD_KINDS.values())


@pytest.mark.parametrize("kind", REWARD_KINDS)
def test_what_a_kind_says_of_itself_fits_its_settings(kind: str) -> None:
    model = REWARD_KINDS[kind]
    assert model().kind == kind  # type: ignore[attr-defined]
    assert model.title and model.group in get_args(Group)
    for name, (other, wanted) in model.used_when.items():
        assert name in model.model_fields and other in model.model_fields
        default = model.model_fields[other].annotation
        assert set(wanted if isinstance(wanted, tuple) else [wanted]) <= set(get_args(default) or {True, False})
    assert set(model.one_per_line) <= set(model.model_fields)
    assert len({REWARD_KINDS[other].title for other in REWARD_KINDS}) == len(REWARD_KINDS)


def test_settings_and_checks_load_no_library_that_they_do_not_need() -> None:
    check = (
        "import sys; import rlhf_studio.inputs.checks.rewards; assert not {'torch', 'gradio', 'httpx', 'transformers'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_httpx_is_loaded_only_for_a_component_that_asks_a_server() -> None:
    for path in Path(kinds.__file__).parent.glob("*.py"):
        at_the_top = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not any("http" in ast.unparse(node) for node in at_the_top), path.name
