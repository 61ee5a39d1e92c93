"""What the program says in English to nobody in particular: errors, and what an engine stores of its run.

``rlhf_studio.language.told`` gives it in a reader's language, so nothing marks it where it is said: the sentences are found by what they
are given to. Of an f-string each value is a slot with the name of what stands there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

RAISED = re.compile(
    r"(?!NotImplemented)(?:Store|Prompts|Model|Component|Checkpoint|Chat|Header|Helper|Parity|NonFinite|Reward|Damaged|Config|Bucket|Line|Not|Cannot|Quest"
    r"|Bad|Part|No|Own|Only|Run(?!time)|Already|Busy|Unusable|Unfit|Step|Stop|Capped|Unstable|Timeout|_)\w*"
)
"""The errors whose sentences people read, by the beginning of their names."""
FOR_PEOPLE = ("config", "inputs", "lessons/teaching", "analysis/compare", "jobs/road", "visible.py")
FOR_PEOPLE += ("engine/rewards", "engine/saving", "engine/stages", "engine/models")
FOR_PEOPLE += ("runs/classroom", "runs/feedback", "runs/hosted", "runs/paths.py", "runs/studio.py", "runs/workspace.py")
FOR_PEOPLE += ("ui/app.py", "ui/hosts.py", "ui/visiting/modes.py", "ui/picker/roots.py")
"""Rooms and files whose ValueErrors are about what people wrote, too."""
FOR_PROGRAMS = ("ppo", "attach", "library", "notebook", "trl/program", "lessons/kit", "lessons/world_build", "engine/check", "ui/api")
"""Whose errors are read by those who write programs or lessons."""
NOT_TOLD = ("lessons/kit", "lessons/world_build", "library", "notebook", "ui/api")
"""Among them those that say nothing to readers of another language in any other way."""
GIVEN = frozenset(("S_", "Problem", "EventRecord", "refuse", "wrong", "_refused", "_unfit", "phase", "_phase", "_pause", "error"))
GIVEN |= {"StoreError", "PromptsError", "NoColumn", "ModelError", "CheckpointError", "ComponentError", "report", "_report", "on_progress"}
GIVEN |= {"_fail", "tick", "fail", "missing", "note", "differ", "_say", "_warn", "refuse_hidden"}
"""What is given sentences, also where nothing is raised."""
SLOT = re.compile(r"\{\w+\}")
DETAILED = re.compile(r"\{(?:\w+\.)*([a-z_]\w*)(?:![rs])?(?::[^{}\s]+)?\}")
"""A slot for ``format`` that says more than a name: ``{data.max_tokens:,}``."""
FIELD = re.compile(r"^(?:[a-z0-9_.]|\{\w+\})+: ")
"""A setting's name before a sentence, which is shown apart from it."""
LETTERS = re.compile(r"[A-Za-z]{3}")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def told_in(path: Path, package: Path) -> Iterator[str]:
    """The sentences of a file that :func:`~rlhf_studio.language.told` translates, in English."""
    inside = path.relative_to(package).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for room, function in _functions(tree):
        for node in room:
            for given in _given(node, inside):
                for text in (FIELD.sub("", text) for text in _sentences(given, function)):
                    if (" " in text or isinstance(node, ast.Call) and _name(node.func) == "S_") and LETTERS.search(SLOT.sub("", text)):
                        yield text


def _functions(tree: ast.Module) -> Iterator[tuple[list[ast.AST], Function | None]]:
    """All that stands in a function and in no function inside it, and the function; what stands in none, with None."""
    waiting: list[tuple[ast.AST, Function | None]] = [(tree, None)]
    while waiting:
        top, function = waiting.pop()
        here, queue = [], list(ast.iter_child_nodes(top))
        while queue:
            node = queue.pop()
            if isinstance(node, Function):
                waiting.append((node, node))
            else:
                here.append(node)
                queue += ast.iter_child_nodes(node)
        yield here, function


def _given(node: ast.AST, inside: str) -> Iterator[ast.expr]:
    """The expressions in a node that may be sentences for people."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and not inside.startswith(FOR_PROGRAMS):
        name = _name(node.exc.func)
        if RAISED.fullmatch(name) or (name == "ValueError" and inside.startswith(FOR_PEOPLE)):
            yield from node.exc.args
    if isinstance(node, ast.Call) and _name(node.func) in GIVEN and not inside.startswith(NOT_TOLD):
        yield from node.args


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _sentences(node: ast.expr, function: Function | None) -> Iterator[str]:
    """The sentences that an expression may be, and those that may stand in its slots."""
    if isinstance(node, ast.IfExp | ast.BoolOp):
        for one in (node.body, node.orelse) if isinstance(node, ast.IfExp) else node.values:
            yield from _sentences(one, function)
    elif isinstance(node, ast.Name) and function is not None:
        for one in ast.walk(function):
            if (
                isinstance(one, ast.Assign)
                and any(_name(target) == node.id for target in one.targets)
                and not isinstance(one.value, ast.Name)
            ):
                yield from _sentences(one.value, function)
    elif isinstance(node, ast.Call) and _name(node.func) in ("N_", "S_"):
        yield from _sentences(node.args[0], function)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        if isinstance(node.func.value, ast.Constant):
            yield str(node.func.value.value)
    elif isinstance(node, ast.JoinedStr | ast.Constant | ast.BinOp):
        slots: dict[str, ast.expr] = {}
        if text := _template(node, slots):
            yield text
        for value in slots.values():
            if isinstance(value, ast.IfExp | ast.BoolOp | ast.JoinedStr):
                yield from (text for text in _sentences(value, function) if not isinstance(value, ast.BoolOp) or " " in text)


def _template(node: ast.expr, slots: dict[str, ast.expr]) -> str:
    """The text of an expression with a slot for each value in it; ``slots`` gets them."""
    if isinstance(node, ast.Constant):
        return DETAILED.sub(r"{\1}", node.value) if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part, slots) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _template(node.left, slots) + _template(node.right, slots)
    value = node.value if isinstance(node, ast.FormattedValue) else node
    name, number = _slot(value), 1
    while f"{name}{'' if number == 1 else number}" in slots:
        number += 1
    slots[name := f"{name}{'' if number == 1 else number}"] = value
    return f"{{{name}}}"


def _slot(node: ast.expr) -> str:
    """The name of what stands in a slot."""
    if isinstance(node, ast.Name | ast.Attribute):
        return _name(node).strip("_").lower()
    if isinstance(node, ast.Call):
        return _slot(node.args[0]) if node.args and isinstance(node.args[0], ast.Name | ast.Attribute | ast.Call) else _slot(node.func)
    return _slot(node.value) if isinstance(node, ast.Subscript) else "value"
