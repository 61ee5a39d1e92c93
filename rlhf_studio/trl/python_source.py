"""Arguments from Python source, which is parsed and never run: literals, and calls of the few functions that TRL's scripts use."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator
from typing import Any

from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.trl.arguments import Arguments, NotLiteral
from rlhf_studio.trl.cells import python_of
from rlhf_studio.trl.dataset_call import POSITIONS, read_load_dataset
from rlhf_studio.trl.table import known_names

CONFIGURATIONS = ("PPOConfig", "PPOv2Config", "ScriptArguments", "ModelConfig")
NAMED_DICTS = ("generation_kwargs", "gen_kwargs", "generate_kwargs", "sent_kwargs", "pipe_kwargs")
LORA = {"r": "lora_r", "target_modules": "lora_target_modules", "bias": "lora_bias", "init_lora_weights": "lora_start"}
PEFT_DEFAULTS = {"lora_r": 8, "lora_alpha": 8, "lora_dropout": 0.0}
ARITHMETIC = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def read_python(text: str) -> Arguments | None:
    """The arguments in the source; None when it is not Python or has none. Raises :class:`ConfigError` when it gives them twice."""
    source = python_of(text)
    if source is None:
        return None
    try:
        return _Source(ast.parse(source)).arguments()
    except RecursionError:
        return None


class _Source:
    """One parsed file, and the value of each name that stands for the same literal everywhere in it."""

    def __init__(self, tree: ast.Module):
        self._nodes = list(ast.walk(tree))
        self._assigned = list(_assignments(self._nodes))
        self._constants: dict[str, Any] = {}
        self._not_literal: dict[str, None] = {}  # lines, each once
        changed: set[str] = set()
        for name, node in self._assigned:
            value = self.value(node)
            if name in self._constants and self._constants[name] != value:
                changed.add(name)
            self._constants[name] = value
        for name in changed:
            self._constants[name] = NotLiteral(name)

    def arguments(self) -> Arguments | None:
        arguments = Arguments(release=self._release())
        calls = [(node, _called(node)) for node in self._nodes if isinstance(node, ast.Call)]
        for kind in CONFIGURATIONS:
            mine = [call for call, name in calls if name == kind]
            if len(mine) > 1:
                raise ConfigError([Problem("", f"there are {len(mine)} calls of {kind} (lines {_lines(mine)}); keep the one to convert")])
            arguments.values |= self._keywords(mine[0]) if mine else {}
        if not arguments.values:
            arguments.values |= self._only_dict()
        for name in NAMED_DICTS:
            value = self._constants.get(name)
            if isinstance(value, dict):
                kind = "sent_kwargs" if name in ("sent_kwargs", "pipe_kwargs") else "generation_kwargs"
                arguments.values[kind] = value | self._put_later(name)
            elif isinstance(value, NotLiteral):
                arguments.lines.append(f"{name}: {value.text!r} is not a literal; write its values")
        for call, name in calls:
            self._beside(arguments, call, name)
        for name, node in self._assigned:
            if isinstance(node, ast.Call) and _called(node) == "LengthSampler":
                self._lengths(arguments, name, node)
        arguments.lines += self._not_literal
        return arguments

    def _put_later(self, name: str) -> dict[str, Any]:
        """The entries that later lines ``name["key"] = value`` add to a dictionary."""
        targets = ((target, node.value) for node in self._nodes if isinstance(node, ast.Assign) for target in node.targets)
        return {
            target.slice.value: self.value(value)
            for target, value in targets
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id == name
            if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str)
        }

    def _release(self) -> str:
        """What the imports say: ``trl.experimental.ppo`` is of 1.12, the step API's classes are of 0.11."""
        modules = {node.module or "" for node in self._nodes if isinstance(node, ast.ImportFrom)}
        names = {alias.name for node in self._nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
        if any(module.startswith("trl.experimental") for module in modules) or "PPOv2Config" in names:
            return "1.12"
        return "0.11" if {"AutoModelForCausalLMWithValueHead", "LengthSampler"} & names else ""

    def _only_dict(self) -> dict[str, Any]:
        """The one dictionary of TRL's options, when the file has no configuration class."""
        dicts = [value for name, value in self._constants.items() if name not in NAMED_DICTS]
        dicts += [self.value(node.value) for node in self._nodes if isinstance(node, ast.Expr)]
        ours = [value for value in dicts if isinstance(value, dict) and known_names() & set(map(str, value))]
        if len(ours) > 1:
            raise ConfigError([Problem("", f"there are {len(ours)} dictionaries with TRL's options; keep the one to convert")])
        return {str(key): value for key, value in ours[0].items()} if ours else {}

    def _beside(self, arguments: Arguments, call: ast.Call, name: str) -> None:
        """Take from a call what TRL's configuration does not say: the data set, generation, the classifier, the adapters."""
        first = self.value(call.args[0]) if call.args else None
        if name == "load_dataset":
            read_load_dataset(arguments, dict(zip(POSITIONS, map(self.value, call.args), strict=False)) | self._keywords(call))
        if name == "generate":
            arguments.values["generation_kwargs"] = self._keywords(call) | arguments.values.get("generation_kwargs", {})
        if name == "pipeline" and first in ("sentiment-analysis", "text-classification"):
            model = self._keywords(call).get("model")
            if isinstance(model, str):
                arguments.values.setdefault("reward_model", f"{first}:{model}")
        if name == "LoraConfig":
            given = {LORA.get(key, key): value for key, value in self._keywords(call).items() if key != "task_type"}
            arguments.values |= PEFT_DEFAULTS | given
            arguments.values["use_peft"] = True

    def _lengths(self, arguments: Arguments, name: str, call: ast.Call) -> None:
        given = [self.value(node) for node in call.args]
        named = self._keywords(call)
        given += [named[key] for key in ("min_value", "max_value")[len(given) :] if key in named]
        if len(given) != 2 or not all(isinstance(value, int) for value in given):
            arguments.lines.append(f"{name}: the lengths of {ast.unparse(call)[:80]} are not literals")
        elif any(part in name for part in ("input", "query", "prompt")):
            arguments.query_lengths = (given[0], given[1])
        else:
            arguments.response_lengths = (given[0], given[1])

    def _keywords(self, call: ast.Call) -> dict[str, Any]:
        name = _called(call)
        if call.args and name in CONFIGURATIONS:
            raise ConfigError([Problem("", f"line {call.lineno}: give the arguments of {name} by name")])
        values: dict[str, Any] = {}
        for keyword in call.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                values[keyword.arg] = value
            elif isinstance(value, dict):
                values |= {str(key): entry for key, entry in value.items()}
            elif isinstance(value, NotLiteral) and name in (*CONFIGURATIONS, "load_dataset", "LoraConfig"):
                self._not_literal[f"{name}(**{value.text}): these arguments are not literals; write them"] = None
        return values

    def value(self, node: ast.expr) -> Any:
        """The literal that the expression is, or :class:`NotLiteral`."""
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, (bool, int, float, str))):
            return node.value
        if isinstance(node, ast.Name) and node.id in self._constants:
            return self._constants[node.id]
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.value(item) for item in node.elts]
        if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
            return {
                key.value: self.value(entry) for key, entry in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)
            }
        if isinstance(node, ast.Call) and _called(node) == "dict" and not node.args:
            return self._keywords(node)
        number = self._number(node)
        return NotLiteral(ast.unparse(node)[:80]) if number is None else number

    def _number(self, node: ast.expr) -> float | None:
        """Signs and the four operations between numbers."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.value(node.operand)
            return -value if isinstance(value, (int, float)) else None
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            left, right = self.value(node.left), self.value(node.right)
            if isinstance(left, (int, float)) and isinstance(right, (int, float)) and max(abs(left), abs(right)) < 1e15:
                return ARITHMETIC[type(node.op)](left, right) if right or type(node.op) not in (ast.Div, ast.FloorDiv) else None
        return None


def _assignments(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Every name with the expression it stands for: assignments, and the defaults of functions."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value
        elif isinstance(node, ast.FunctionDef) and node.args.defaults:
            yield from zip([argument.arg for argument in node.args.args[-len(node.args.defaults) :]], node.args.defaults, strict=True)


def _called(node: ast.Call) -> str:
    """The last part of the called name."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def _lines(calls: list[ast.Call]) -> str:
    return " and ".join(str(call.lineno) for call in calls)
