"""The writers of documentation stay out of what is installed, and the examples in docs/extending.md are right."""

from __future__ import annotations

import ast
import dataclasses
import re
import tomllib
from pathlib import Path

import yaml
from setuptools import find_packages

from rlhf_studio.config.metrics.metric import Metric
from rlhf_studio.config.recipes import recipe_from_mapping

ROOT = Path(__file__).parents[1]


def example(language: str) -> str:
    """The one block of that language in docs/extending.md."""
    (block,) = re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(encoding="utf-8"), re.S)
    return block


def test_only_the_package_itself_is_installed() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    found = find_packages(str(ROOT), include=setuptools["packages"]["find"]["include"])
    assert {name.split(".")[0] for name in found} == {"rlhf_studio"}
    assert {"rlhf_studio.config.metrics", "rlhf_studio.trl", "rlhf_studio.config.recipes"} <= set(found)


def test_the_recipe_in_the_documentation_is_one() -> None:
    recipe = recipe_from_mapping("mine", yaml.safe_load(example("yaml")))
    assert (recipe.order, recipe.title, recipe.minutes, recipe.config.ppo.steps) == (25, "My world", 2.0, 30)


def test_the_metric_in_the_documentation_is_one() -> None:
    call = ast.parse(example("python"), mode="eval").body
    assert isinstance(call, ast.Call) and ast.unparse(call.func) == "Metric"
    fields = [field.name for field in dataclasses.fields(Metric)]
    assert len(call.args) == fields.index("good") + 1
    assert {keyword.arg for keyword in call.keywords} <= set(fields[len(call.args) :])
