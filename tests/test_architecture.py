"""The layers, the size limits and the forbidden calls, read from the source."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "rlhf_studio"
SOURCES = sorted(PACKAGE.rglob("*.py"))
LONGEST_FILE, LONGEST_FUNCTION = 400, 60

# Which of our modules a layer may import. The world's grammar and gold reward are pure and belong to everyone's vocabulary.
MAY_IMPORT = {
    "config": set(),
    "config_io": {"config", "from_trl.table"},
    "config_docs": {"config"},
    "from_trl": {"config", "config_io"},
    "glossary": set(),
    "gpus": set(),
    "ppo": set(),
    "recipes": {"config", "config_io"},
    "runs": {"config", "config_io", "gpus"},
    "inputs": {"config", "config_io", "gpus"},
    "engine": {"ppo", "runs", "config", "config_io", "inputs", "world.gold"},
    "world": {"engine", "config", "config_io", "inputs"},
    "ui": {"config", "config_io", "glossary", "gpus", "recipes", "runs", "inputs", "ppo", "analysis", "lessons"},
    "cli": {"config", "config_io", "recipes", "runs", "inputs", "engine", "world", "ui", "cli_prepare", "cli_engine"},
    "cli_engine": {"config", "config_io", "runs", "inputs", "engine"},
    "cli_prepare": {"config_io", "inputs", "from_trl"},
    "__main__": {"cli"},
    "__init__": set(),
}
NEVER_LOADED = {
    "runs": {"torch", "gradio", "transformers"},
    "config": {"torch", "gradio"},
    "gpus": {"torch", "gradio"},
    "inputs": {"torch", "transformers", "gradio"},
}
FORBIDDEN = ("pickle", "torch.load", "eval", "exec", "os.system")
OPENS_PICKLES = PACKAGE / "engine" / "unpickling.py"  # in a process of its own, with torch's weights-only reader


def layer_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, f"{path}: reach other packages by their full name"
            package = f"rlhf_studio.{layer_of(path)}" if node.level else ""
            yield ".".join(part for part in (package, node.module) if part)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_import_rules(path: Path) -> None:
    layer = layer_of(path)
    allowed = MAY_IMPORT[layer] | {layer}
    for name in imports(path):
        if not name.startswith("rlhf_studio."):
            assert name.split(".")[0] not in NEVER_LOADED.get(layer, set()), f"{path} imports {name}"
            continue
        inner = name.removeprefix("rlhf_studio.")
        if layer == "from_trl" and path.stem == "table":  # what config_io itself asks
            allowed = set()
        if layer == "world" and path.stem not in ("build", "check", "__main__"):
            allowed = {"world"}
        assert any(inner == one or inner.startswith(f"{one}.") for one in allowed), f"{path} may not import {name}"


def test_only_the_command_line_imports_the_interface() -> None:
    users = {layer_of(path) for path in SOURCES for name in imports(path) if name.startswith("rlhf_studio.ui")}
    assert users <= {"ui", "cli"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_sizes(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LONGEST_FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_forbidden_calls(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not {"pickle", "marshal", "shelve", "dill"} & {name.split(".")[0] for name in imports(path)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            assert name not in FORBIDDEN or (name == "torch.load" and path == OPENS_PICKLES), f"{path}:{node.lineno}"
            for keyword in node.keywords:
                value = getattr(keyword.value, "value", None)
                assert not (keyword.arg in ("shell", "trust_remote_code") and value is True), f"{path}:{node.lineno}"
                assert not (keyword.arg == "datatype" and value == "html"), f"{path}:{node.lineno}"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{path}:{node.lineno}: name the exception"
            swallowed = all(isinstance(line, ast.Pass) for line in node.body)
            assert not swallowed, f"{path}:{node.lineno}: a swallowed exception; use contextlib.suppress with its name"


def test_pickles_are_opened_once_as_weights_only_and_in_no_process_of_ours() -> None:
    calls = [node for node in ast.walk(ast.parse(OPENS_PICKLES.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    (opening,) = [node for node in calls if ast.unparse(node.func) == "torch.load"]
    assert {keyword.arg: ast.unparse(keyword.value) for keyword in opening.keywords}["weights_only"] == "True"
    assert not any(name.endswith(OPENS_PICKLES.stem) for path in SOURCES for name in imports(path))


def test_html_is_made_in_one_place() -> None:
    for path in (PACKAGE / "ui").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "gr.HTML":
                assert path.name == "html.py", f"{path}:{node.lineno} makes HTML; that belongs into ui/html.py"


ASSETS = PACKAGE / "ui" / "assets"


@pytest.mark.parametrize("path", sorted([*ASSETS.rglob("*.js"), *ASSETS.rglob("*.css")]), ids=lambda path: path.name)
def test_scripts_and_styles_are_short_and_narrow(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LONGEST_FILE
    width = json.loads((ROOT / ".prettierrc.json").read_text(encoding="utf-8"))["printWidth"]
    assert width == 120
    too_wide = [number for number, line in enumerate(lines, 1) if len(line) > width]
    assert not too_wide, f"{path}: lines {too_wide} have more than {width} characters"


def test_nothing_speaks_of_where_it_was_written() -> None:
    suspicious = ("/work" + "/", "/tmp/bash" + "_jobs", "/opt/studio" + "-venv", "file:///opt")
    patterns = ("*.md", "*.txt", "*.toml", "docs/*.md", "tests/**/*.py", "benchmarks/**/*.py")
    text_files = [*SOURCES, *(path for pattern in patterns for path in ROOT.glob(pattern))]
    for path in text_files:
        text = path.read_text(encoding="utf-8")
        for word in suspicious:
            assert word not in text or path == Path(__file__), f"{path} names {word}"
