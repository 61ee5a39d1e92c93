"""The writers of documentation stay out of what is installed, and the examples for contributors are right."""

from __future__ import annotations

import ast
import dataclasses
import re
import textwrap
from pathlib import Path

import yaml
from setuptools import find_packages

from rlhf_studio.config.metrics.metric import Metric
from rlhf_studio.config.recipes import recipe_from_mapping

ROOT = Path(__file__).parents[1]


def examples(page: str, language: str) -> list[str]:
    """The blocks of that language on a page, without the indent of a list."""
    blocks = re.findall(rf"^ *```{language}\n(.*?)^ *```", (ROOT / page).read_text(encoding="utf-8"), re.S | re.M)
    return [textwrap.dedent(block) for block in blocks]


def test_only_the_package_itself_is_installed() -> None:
    (include,) = re.findall(r"find_packages\(include=\[\"(.+?)\"\]\)", (ROOT / "setup.py").read_text(encoding="utf-8"))
    found = find_packages(str(ROOT), include=[include])
    assert {name.split(".")[0] for name in found} == {"rlhf_studio"}
    assert {"rlhf_studio.config.metrics", "rlhf_studio.trl", "rlhf_studio.config.recipes"} <= set(found)


def test_the_recipe_in_the_documentation_is_one() -> None:
    recipe = recipe_from_mapping("mine", yaml.safe_load(examples("docs/extending.md", "yaml")[0]))
    assert (recipe.order, recipe.title, recipe.minutes, recipe.config.ppo.steps) == (25, "My world", 2.0, 30)


def test_the_metric_in_the_documentation_is_one() -> None:
    (block,) = [block for block in examples("CONTRIBUTING.md", "python") if block.startswith("Metric(")]
    call = ast.parse(block, mode="eval").body
    assert isinstance(call, ast.Call) and ast.unparse(call.func) == "Metric"
    fields = [field.name for field in dataclasses.fields(Metric)]
    assert len(call.args) == fields.index("good") + 1
    assert {keyword.arg for keyword in call.keywords} <= set(fields[len(call.args) :])
