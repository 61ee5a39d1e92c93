"""The layers, the size limits and the forbidden calls, read from the source."""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "rlhf_studio"
SOURCES = sorted(PACKAGE.rglob("*.py"))
ASSETS = PACKAGE / "ui" / "assets"
SCRIPTS = sorted([*ASSETS.rglob("*.js"), *ASSETS.rglob("*.css")])
LONGEST_FILE, LONGEST_FUNCTION = 600, 60

# Which rooms each room may import. A room inside another (engine/loop) has a row of its own; all rooms of the engine may import the
# few files that lie in the engine itself (types, text, padding, ...) beside what their row names.
ROOMS = """
config:
exit_codes:
language:
ppo:
regular:
system:
token_texts:
units:
visible:
child_process: config
runs: child_process config exit_codes
inputs: child_process config runs
trl: config
trl/program: config engine inputs ppo runs trl
attach: config runs
analysis: config inputs.fitted inputs.helper runs
engine: config inputs ppo
engine/compute: config inputs
engine/models: config engine.compute inputs ppo
engine/sampling: config engine.compute engine.models inputs
engine/rewards: child_process config engine.compute engine.models exit_codes inputs ppo runs
engine/rewards/kinds: child_process config engine.compute engine.models engine.rewards.episodes engine.rewards.errors
    engine.rewards.outside engine.rewards.registry inputs
engine/rewards/outside: config engine.rewards.errors engine.rewards.registry
engine/recording: config engine.compute engine.rewards ppo runs
engine/loop: config engine.compute engine.models engine.recording engine.rewards engine.sampling inputs ppo runs
engine/parity: config engine.compute engine.loop engine.models engine.rewards engine.sampling inputs runs
engine/saving: config engine.loop engine.compute engine.models runs
engine/stages: analysis.reward_model config engine.compute engine.loop engine.models engine.parity engine.recording engine.rewards
    engine.sampling engine.saving inputs ppo runs
engine/check: child_process config engine exit_codes inputs runs
engine/process: child_process config engine exit_codes inputs runs
lessons: analysis child_process config engine inputs ppo runs trl
jobs: analysis child_process config engine exit_codes inputs ppo runs
ui: analysis child_process config exit_codes inputs jobs lessons.kit lessons.faults lessons.gallery lessons.shelf lessons.teaching runs
    trl.names trl.table
cli: analysis child_process config engine exit_codes handover inputs jobs lessons runs trl ui
handover: child_process config inputs
notebook: analysis config runs ui.live.charts ui.live.payloads
library: config engine inputs runs trl.table
__main__: cli
__init__:
"""
ROWS = (row.partition(":") for row in ROOMS.replace("\n    ", " ").strip().splitlines())
MAY_IMPORT = {room: set(names.split()) for room, _, names in ROWS}
NEVER_LOADED = {
    "child_process": {"torch", "transformers", "gradio"},
    "runs": {"torch", "gradio", "transformers"},
    "config": {"torch", "transformers", "gradio", "numpy"},
    "analysis": {"torch", "transformers", "gradio"},
    "inputs": {"torch", "transformers", "gradio"},
    "handover": {"torch", "gradio"},
    "notebook": {"torch", "gradio"},
    "attach": {"torch", "transformers", "trl", "gradio", "accelerate"},
}
NOT_INSTALLED = {"tools", "tests", "benchmarks"}
FORBIDDEN = ("pickle", "torch.load", "eval", "exec", "os.system")
PRINTS = PACKAGE / "visible.py"  # text of others must not steer a terminal
MAKES_HTML = PACKAGE / "ui" / "html.py"
OPENS_PICKLES = PACKAGE / "engine" / "process" / "unpickling.py"  # in a process of its own, with torch's weights-only reader


def layer_of(path: Path) -> str:
    """The room that a file is in; a file of the package's own folder is a room by itself."""
    *folders, name = path.relative_to(PACKAGE).parts
    rooms = ["/".join(folders[:depth]) for depth in range(len(folders), 0, -1)]
    return next((room for room in rooms if room in MAY_IMPORT), rooms[0] if rooms else name.removesuffix(".py"))


@functools.lru_cache(maxsize=1)
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All of a file that rules look at; read once for all of them, and not kept, as there are a million."""
    found: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    for node in found:  # as ast.walk does, without the one object of each kind for reading and writing a name, which half of a file is
        for name in node._fields:
            inner = getattr(node, name)
            if isinstance(inner, list):
                found.extend(part for part in inner if isinstance(part, ast.AST))
            elif isinstance(inner, ast.AST) and name != "ctx":
                found.append(inner)
    return tuple(found)


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 1, f"{path}: reach other packages by their full name"
            package = ".".join(path.relative_to(ROOT).parts[:-1]) if node.level else ""
            module = ".".join(part for part in (package, node.module) if part)
            for whole in (f"{module}.{alias.name}" for alias in node.names):  # a name may be a module or a room itself
                place = ROOT / whole.replace(".", "/")
                yield whole if place.is_dir() or place.with_suffix(".py").is_file() else module


PRIVATE_IN = {"gradio", "starlette", "uvicorn", "fastapi", "spaces", "plotly"}


def private_names(path: Path) -> Iterator[str]:
    """Names that begin with an underscore and are not the file's own: what the packages of the app do not promise."""
    own_objects = [node for node in nodes(path) if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in ("self", "cls")]
    mine = {node.attr for node in own_objects} | {
        node.target.id for node in nodes(path) if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for node in nodes(path):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                whole = [*module.split("."), *alias.name.split(".")]
                whole = whole[1:] if not whole[0] else whole
                if whole[0] in PRIVATE_IN and (any(part.startswith("_") for part in whole) or "protocols" in whole):
                    yield ".".join(whole)
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if node.attr not in mine and not (isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "super"):
                yield f".{node.attr}"
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "setattr", "hasattr"):
            yield from (str(word.value) for word in node.args[1:2] if isinstance(word, ast.Constant) and str(word.value).startswith("_"))


def test_the_app_uses_no_private_name_of_the_packages_that_serve_it(tmp_path: Path) -> None:
    """``demo._queue`` and the like change without notice."""
    tried = tmp_path / "tried.py"
    tried.write_text(
        "from starlette._utils import a\nimport gradio._x\nfrom gradio import _b\nfrom uvicorn.protocols.http import c\n"
        "demo._queue\nself.demo._queue\nself._mine\nsuper()._mine\ngetattr(demo, '_hidden')\nfrom rlhf_studio.x import _own\n"
    )
    assert len(list(private_names(tried))) == 7
    assert list(private_names(ROOT / "app.py")) == []


def uses_no_private_name(path: Path) -> None:
    if layer_of(path) == "ui":
        assert list(private_names(path)) == [], path
    assert [name for name in imports(path) if name.split(".")[0] in PRIVATE_IN and "._" in name] == [], path


def follows_the_import_rules(path: Path) -> None:
    layer = layer_of(path)
    allowed = MAY_IMPORT[layer] | {layer.replace("/", "."), "language", "regular", "system", "token_texts", "units", "visible"}
    if layer.startswith("engine"):
        allowed = allowed | {f"engine.{path.stem}" for path in (PACKAGE / "engine").glob("*.py")}
    for name in imports(path):
        if not name.startswith("rlhf_studio."):
            assert name.split(".")[0] not in NOT_INSTALLED, f"{path} imports {name}"
            assert name.split(".")[0] not in NEVER_LOADED.get(layer, set()), f"{path} imports {name}"
            continue
        inner = name.removeprefix("rlhf_studio.")
        assert any(inner == one or inner.startswith(f"{one}.") for one in allowed), f"{path} may not import {name}"


def is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE, path
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{path}: {node.name} has {length} lines"


def calls_nothing_forbidden(path: Path) -> None:
    assert not {"pickle", "marshal", "shelve", "dill"} & {name.split(".")[0] for name in imports(path)}, path
    assert not any(name.endswith(OPENS_PICKLES.stem) for name in imports(path)), f"{path}: pickles are opened in a process of their own"
    for node in nodes(path):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            assert name not in FORBIDDEN or (name == "torch.load" and path == OPENS_PICKLES), f"{path}:{node.lineno}"
            assert name != "torch.load" or "weights_only=True" in ast.unparse(node), f"{path}:{node.lineno}"
            assert name != "print" or path == PRINTS, f"{path}:{node.lineno}: use say"
            assert name.split(".")[-1] != "HTML" or path == MAKES_HTML, f"{path}:{node.lineno}: HTML is made in ui/html.py"
            for keyword in node.keywords:
                value = getattr(keyword.value, "value", None)
                assert not (keyword.arg in ("shell", "trust_remote_code") and value is True), f"{path}:{node.lineno}"
                assert not (keyword.arg == "datatype" and value == "html"), f"{path}:{node.lineno}"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{path}:{node.lineno}: name the exception"
            swallowed = all(isinstance(line, ast.Pass) for line in node.body)
            assert not swallowed, f"{path}:{node.lineno}: a swallowed exception; use contextlib.suppress with its name"


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of such an expression; what is a call or an index in it is a question mark."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


RULES = (follows_the_import_rules, is_short, calls_nothing_forbidden, uses_no_private_name)


def test_every_file_follows_the_rules() -> None:
    """One test for all files: pytest's own work for one of each file and rule took longer than the rules."""
    for path in SOURCES:
        for rule in RULES:
            rule(path)


def test_scripts_and_styles_are_short_and_narrow() -> None:
    width = json.loads((ROOT / ".prettierrc.json").read_text(encoding="utf-8"))["printWidth"]
    assert width == 120
    for path in SCRIPTS:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= LONGEST_FILE, path
        too_wide = [number for number, line in enumerate(lines, 1) if len(line) > width]
        assert not too_wide, f"{path}: lines {too_wide} have more than {width} characters"


def test_nothing_speaks_of_where_it_was_written() -> None:
    suspicious = ("/work" + "/", "/tmp/bash" + "_jobs", "/opt/studio" + "-venv", "file:///opt")
    folders = ("rlhf_studio", "tests", "benchmarks", "docs", "tools", "examples", "deploy", ".ci")
    endings = {".py", ".js", ".css", ".md", ".yaml", ".toml", ".txt", ".json", ""}
    files = [*ROOT.glob("[!.]*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    for path in files:
        if path.is_file() and path.suffix in endings and path != Path(__file__):
            text = path.read_text(encoding="utf-8", errors="replace")
            for word in suspicious:
                assert word not in text, f"{path} names {word}"
