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
LONGEST_FILE, LONGEST_FUNCTION, MOST_FILES = 400, 60, 11
# Folders that are flat on purpose: a page's scripts and styles lie together, and `runs` and `ui` have one file for each thing that they
# do. The limit is what they hold today: whoever adds a file there puts two together, or makes a folder and says so here.
MOST_FILES_IN = {
    "engine/models": 12,
    "inputs": 13,
    "engine/rewards/kinds": 12,
    "runs": 28,
    "ui": 21,
    "ui/assets/live": 28,
    "ui/assets/runs": 16,
    "ui/assets/shared": 22,
    "ui/assets/train": 16,
}

# Which rooms each room may import. A room inside another (engine/loop) has a row of its own; all rooms of the engine may import the
# few files that lie in the engine itself (types, text, padding, ...) beside what their row names.
ROOMS = """
child_process: config
config:
exit_codes:
config_io: config from_trl.table
from_trl: config config_io
metrics:
glossary: metrics
ppo:
recipes: config config_io
regular:
units:
visible:
runs: child_process config config_io estimate.gpus estimate.scaled_time exit_codes inputs.bundled
analysis: config metrics recipes runs
logs: config config_io inputs.helper runs
export: analysis config config_io engine.models.merging inputs logs metrics runs
inputs: child_process config config_io world
estimate: config config_io inputs
preflight: config config_io estimate inputs runs.evaluation runs.errors
evaluation: config config_io inputs runs
world:
engine: config inputs ppo
engine/distributed: inputs
engine/compute: config config_io engine.distributed estimate inputs
engine/models: config config_io engine.compute engine.distributed inputs ppo
engine/sampling: config engine.compute engine.distributed engine.models estimate inputs
engine/rewards: child_process config config_io engine.compute engine.distributed engine.models exit_codes inputs ppo runs
    world.gold
engine/rewards/kinds: child_process config config_io engine.compute engine.distributed engine.models engine.rewards.episodes
    engine.rewards.errors engine.rewards.outside engine.rewards.registry inputs
engine/rewards/outside: config config_io engine.rewards.errors engine.rewards.registry
engine/recording: config engine.compute engine.distributed engine.rewards ppo runs
engine/loop: config config_io engine.compute engine.distributed engine.models engine.recording engine.rewards engine.sampling
    inputs ppo runs
engine/parity: config engine.compute engine.distributed engine.loop engine.models engine.rewards engine.sampling inputs runs
engine/saving: config engine.distributed engine.loop engine.models runs
engine/stages: config config_io engine.compute engine.distributed engine.loop engine.models engine.parity engine.recording engine.sampling
    engine.saving inputs ppo runs
engine/stages/reward_model: analysis.reward_model config config_io engine.compute engine.models inputs world.gold world.vocabulary
engine/stages/evaluating: config config_io engine.compute engine.loop engine.models engine.recording engine.rewards engine.saving
    engine.stages estimate inputs ppo runs
engine/process: child_process config config_io engine exit_codes inputs runs
engine/talk: config config_io engine estimate exit_codes inputs ppo runs
world_build: config engine inputs recipes runs world
ui: analysis child_process config config_io estimate evaluation exit_codes export from_trl.names glossary inputs lessons.kit
    lessons.faults lessons.shelf lessons.teaching logs metrics preflight recipes road runs
cli: analysis child_process config config_io engine estimate.disk evaluation exit_codes export from_trl inputs lessons logs
    preflight recipes road runs ui world_build
road: analysis.ends analysis.evaluation child_process config config_io exit_codes inputs metrics preflight recipes runs world.corpus
lessons: analysis config engine estimate from_trl inputs ppo recipes runs world
library: config config_io engine inputs
__main__: cli
__init__:
"""
ROWS = (row.partition(":") for row in ROOMS.replace("\n    ", " ").strip().splitlines())
MAY_IMPORT = {room: set(names.split()) for room, _, names in ROWS}
NEVER_LOADED = {
    "child_process": {"torch", "transformers", "gradio"},
    "runs": {"torch", "gradio", "transformers"},
    "config": {"torch", "gradio"},
    "analysis": {"torch", "transformers", "gradio"},
    "logs": {"torch", "transformers", "gradio"},
    "metrics": {"torch", "transformers", "gradio", "numpy"},
    "inputs": {"torch", "transformers", "gradio"},
    "estimate": {"torch", "transformers", "gradio"},
    "preflight": {"torch", "transformers", "gradio"},
}
FORBIDDEN = ("pickle", "torch.load", "eval", "exec", "os.system")
PRINTS = PACKAGE / "visible.py"  # text of others must not steer a terminal
OPENS_PICKLES = PACKAGE / "engine" / "process" / "unpickling.py"  # in a process of its own, with torch's weights-only reader


def layer_of(path: Path) -> str:
    """The room that a file is in; a file of the package's own folder is a room by itself."""
    *folders, name = path.relative_to(PACKAGE).parts
    rooms = ["/".join(folders[:depth]) for depth in range(len(folders), 0, -1)]
    return next((room for room in rooms if room in MAY_IMPORT), rooms[0] if rooms else name.removesuffix(".py"))


@functools.lru_cache(maxsize=1)
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All of a file; read once for all rules, and not kept, as there are a million."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


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


def test_imports_name_the_rooms_that_are_imported_by_name(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text("import math\nfrom rlhf_studio import ui, config_io, __version__\nfrom rlhf_studio.runs.paths import LOG\n")
    assert list(imports(source)) == ["math", "rlhf_studio.ui", "rlhf_studio.config_io", "rlhf_studio", "rlhf_studio.runs.paths"]


def follows_the_import_rules(path: Path) -> None:
    layer = layer_of(path)
    allowed = MAY_IMPORT[layer] | {layer.replace("/", "."), "regular", "units", "visible"}
    if layer.startswith("engine"):
        allowed = allowed | {f"engine.{path.stem}" for path in (PACKAGE / "engine").glob("*.py")}
    for name in imports(path):
        if not name.startswith("rlhf_studio."):
            assert name.split(".")[0] not in NEVER_LOADED.get(layer, set()), f"{path} imports {name}"
            continue
        inner = name.removeprefix("rlhf_studio.")
        if layer == "from_trl" and path.stem == "table":  # what config_io itself asks
            allowed = set()
        assert any(inner == one or inner.startswith(f"{one}.") for one in allowed), f"{path} may not import {name}"


def test_rules_name_rooms_that_exist() -> None:
    named = set(MAY_IMPORT) | {name.replace(".", "/") for names in MAY_IMPORT.values() for name in names}
    for name in named:
        assert (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file(), name


def test_no_folder_is_crowded() -> None:
    watched = [path for path in SOURCES if path.relative_to(PACKAGE).parts[0] in ("engine", "inputs", "estimate", "runs", "ui")]
    for folder in {path.parent for path in [*watched, *SCRIPTS]}:
        files = [path for path in folder.iterdir() if path.suffix in (".py", ".js", ".css") and path.stem != "__init__"]
        name = folder.relative_to(PACKAGE).as_posix()
        assert len(files) <= MOST_FILES_IN.get(name, MOST_FILES), f"{name} has {len(files)} files"


def test_only_the_command_line_imports_the_interface() -> None:
    users = {layer_of(path) for path in SOURCES for name in imports(path) if name.startswith("rlhf_studio.ui")}
    assert users <= {"ui", "cli"}


def is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE, path
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{path}: {node.name} has {length} lines"


def calls_nothing_forbidden(path: Path) -> None:
    assert not {"pickle", "marshal", "shelve", "dill"} & {name.split(".")[0] for name in imports(path)}, path
    for node in nodes(path):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            assert name not in FORBIDDEN or (name == "torch.load" and path == OPENS_PICKLES), f"{path}:{node.lineno}"
            assert name != "print" or path == PRINTS, f"{path}:{node.lineno}: use say"
            for keyword in node.keywords:
                value = getattr(keyword.value, "value", None)
                assert not (keyword.arg in ("shell", "trust_remote_code") and value is True), f"{path}:{node.lineno}"
                assert not (keyword.arg == "datatype" and value == "html"), f"{path}:{node.lineno}"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{path}:{node.lineno}: name the exception"
            swallowed = all(isinstance(line, ast.Pass) for line in node.body)
            assert not swallowed, f"{path}:{node.lineno}: a swallowed exception; use contextlib.suppress with its name"


RULES = (follows_the_import_rules, is_short, calls_nothing_forbidden)


def test_every_file_follows_the_rules() -> None:
    """One test for all files: pytest's own work for one of each file and rule took longer than the rules."""
    for path in SOURCES:
        for rule in RULES:
            rule(path)


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
    patterns = ("*.md", "*.txt", "*.toml", "docs/*.md", "tests/**/*.py", "benchmarks/**/*.py")
    text_files = [*SOURCES, *(path for pattern in patterns for path in ROOT.glob(pattern))]
    for path in text_files:
        text = path.read_text(encoding="utf-8")
        for word in suspicious:
            assert word not in text or path == Path(__file__), f"{path} names {word}"
