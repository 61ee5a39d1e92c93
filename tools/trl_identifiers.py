"""Makes the list of the names that a reader of TRL's PPO meets, from the source of TRL itself.

``python -m tools.trl_identifiers 1.12.0=FOLDER 0.11.4=FOLDER > rlhf_studio/lessons/trl_names/identifiers.yaml``, where FOLDER is that
release's package ``trl`` (from an unpacked wheel; nothing is imported). Without arguments: the installed release alone.

What counts, in the files of :data:`FILES`:

- ``class``, ``function``: everything defined in them, methods and inner functions too;
- ``argument``: all parameters, without self, cls, args and kwargs;
- ``attribute``: what is assigned to ``self.x``, and what stands in a class's body (the options of a configuration);
- ``constant``: what is assigned at the top of a file;
- ``local``: what is assigned, or bound by for or with, in a function of a trainer's file (:data:`TRAINERS`); not in the others;
- ``imported``: names that a trainer's file takes from other modules with ``from ... import``;
- ``metric``: texts with a slash that are a key, such as ``metrics["objective/kl"]``, and ``eps``, ``lr`` and ``episode`` of ``metrics``.

Of what these files import from TRL itself, also the definition counts: its methods, arguments and attributes, but not its locals.
Names of Python (``print``), names that are only read (``torch.no_grad``), and the name ``_`` do not count.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

INSTALLED = "1.12.0"
FILES = {
    "0.11.4": ("trainer/ppo_trainer.py", "trainer/ppo_config.py", "trainer/ppov2_trainer.py", "trainer/ppov2_config.py"),
    "1.12.0": ("experimental/ppo/ppo_trainer.py", "experimental/ppo/ppo_config.py", "experimental/ppo/modeling_value_head.py"),
}
TRAINERS = ("ppo_trainer.py", "ppov2_trainer.py")
LEFT_OUT = {"self", "cls", "args", "kwargs", "_", "__future__"}
Found = dict[str, set[str]]


def identifiers(folder: Path, release: str) -> dict[str, list[str]]:
    """The names by kind, sorted. Raises KeyError for a release that is not in :data:`FILES`, and OSError."""
    found: Found = defaultdict(set)
    for name in FILES[release]:
        path = folder / name
        tree, whole = _parsed(path), path.name in TRAINERS
        _take(tree, found, with_locals=whole)
        for source, imported in _imports(tree):
            if whole:
                found["imported"].add(imported)
            for definition in _definitions(folder, path, source, imported):
                _take(definition, found, with_locals=False)
    return {kind: sorted(names - LEFT_OUT) for kind, names in sorted(found.items())}


def installed_folder() -> Path:
    """Where the installed TRL is. Raises ModuleNotFoundError when it is not there."""
    spec = importlib.util.find_spec("trl")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("trl is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(tree: ast.Module) -> Iterator[tuple[ast.ImportFrom, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node, alias.asname or alias.name


def _definitions(folder: Path, path: Path, source: ast.ImportFrom, name: str) -> Iterator[ast.stmt]:
    """The definition that an import from TRL itself leads to; also behind an ``__init__`` that passes it on."""
    if not source.level and not (source.module or "").startswith("trl."):
        return
    start = path.parents[source.level - 1] if source.level else folder
    place = start.joinpath(*(source.module or "").removeprefix("trl.").split("."))
    files = [place.with_suffix(".py")] if place.with_suffix(".py").is_file() else sorted(place.glob("*.py"))
    for file in files:
        for node in _parsed(file).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                yield node
                return


def _take(tree: ast.AST, found: Found, *, with_locals: bool) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found["class"].add(node.name)
            found["attribute"] |= {name for line in node.body for name in _bound(line)}
        elif isinstance(node, ast.FunctionDef):
            found["function"].add(node.name)
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            found["argument"] |= {argument.arg for argument in arguments}
            if with_locals:
                found["local"] |= {name for line in ast.walk(node) for name in _bound(line)}
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and getattr(node.value, "id", "") == "self":
            found["attribute"].add(node.attr)
        elif isinstance(node, ast.Subscript | ast.Dict):
            found["metric"] |= set(_metrics(node))
    if isinstance(tree, ast.Module):
        found["constant"] |= {name for line in tree.body for name in _bound(line)}
    found["local"] -= found["argument"]


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds, or a comprehension's part."""
    targets: list[ast.AST] = []
    if isinstance(node, ast.Assign):
        targets = list(node.targets)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.comprehension | ast.NamedExpr):
        targets = [node.target]
    elif isinstance(node, ast.With):
        targets = [item.optional_vars for item in node.items if item.optional_vars]
    for target in targets:
        for inner in ast.walk(target):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id


def _metrics(node: ast.Subscript | ast.Dict) -> Iterator[str]:
    keys = [node.slice] if isinstance(node, ast.Subscript) else node.keys
    of_metrics = isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "metrics"
    for key in keys:
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and ("/" in key.value or of_metrics):
            yield key.value


def document(folders: dict[str, Path]) -> str:
    """The list as YAML: for each release the names by kind."""
    lines = ["# The names that a reader of TRL's PPO meets, by release and kind. Made by tools/trl_identifiers.py, which says what counts."]
    for release, folder in sorted(folders.items()):
        lines.append(f'"{release}":')
        for kind, names in identifiers(folder, release).items():
            lines.append(f"  {kind}:")
            lines += [f"    {line}" for line in _wrapped(names)]
    return "\n".join(lines) + "\n"


def _wrapped(names: list[str]) -> list[str]:
    lines = ["["]
    for name in names:
        piece = f'"{name}", '
        if len(lines[-1]) + len(piece) > 120:
            lines.append(" ")
        lines[-1] += piece
    lines[-1] = lines[-1].rstrip(", ") + "]"
    return [line.rstrip() for line in lines]


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    sys.stdout.write(document({release: Path(folder) for release, folder in given.items()} or {INSTALLED: installed_folder()}))
