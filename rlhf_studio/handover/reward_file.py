"""The rewards of a run as one Python file that needs nothing of this program: its rules are this program's own source, copied.

verl calls ``compute_score`` of such a file, OpenRLHF ``reward_func``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import rlhf_studio
from rlhf_studio.config import Component, Permissions, PythonReward, RegexReward, RewardConfig
from rlhf_studio.config.io import Problem
from rlhf_studio.language import S_
from rlhf_studio.regular import read_regular

PACKAGE = Path(rlhf_studio.__file__).parent
KINDS = PACKAGE / "engine" / "rewards" / "kinds"
CHILD = KINDS.parent / "outside" / "python_child.py"
RULES, ANSWER, LEXICON, OVERLAP = (KINDS / name for name in ("rules.py", "answer.py", "lexicon.py", "overlap.py"))
HANDED, ERRORS = Path(__file__).with_name("handed.py"), KINDS.parent / "errors.py"
EVERYTHING: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """Where a kind's rule is written.

    Attributes:
        function: makes the rule from the component's settings.
        takes: as in :class:`rlhf_studio.handover.handed.HandedReward`.
        parts: files and the names that are copied from each; all of a file where none is named.
        needs: packages of others that it imports.
    """

    function: str
    takes: str
    parts: tuple[tuple[Path, tuple[str, ...]], ...]
    needs: tuple[str, ...] = ()


SOURCES = {
    "length": Source("length_rule", "text", ((RULES, ("length_rule",)),)),
    "keywords": Source("keyword_rule", "text", ((RULES, ("keyword_rule",)),)),
    "regex": Source("regex_rule", "text", ((RULES, ("regex_rule",)),), ("regex",)),
    "repetition": Source("repetition_rule", "text", ((RULES, ("repetition_rule",)),)),
    "lexicon": Source(
        "lexicon_rule",
        "text",
        ((LEXICON, ("NEGATIONS", "_WORD", "_SENTENCE_END", "lexicon_rule", "_words", "_balance", "_plain")),),
    ),
    "answer": Source(
        "answer_rule",
        "pair",
        (
            (KINDS / "numbers.py", EVERYTHING),
            (ERRORS, ("SHOWN", "quoted")),
            (ANSWER, ("answer_rule", "_no_answer", "_readings")),
        ),
        ("regex",),
    ),
    "bleu": Source("bleu", "pair", ((OVERLAP, ("bleu",)),), ("sacrebleu",)),
    "rouge": Source("rouge", "pair", ((OVERLAP, ("rouge",)),), ("rouge_score",)),
    "python": Source(
        "call",
        "function",
        ((CHILD, ("MOST_REPR", "Unusable", "call", "names_of_extra", "numbers", "score_of", "number", "short_repr")),),
    ),
}
"""The kinds that a file can say."""

VERL = '''
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **others):
    """What verl calls for each response: ``score``, and the components, which verl writes beside it."""
    prompt = str((extra_info or {}).get("prompt", ""))
    return REWARD.score(prompt, solution_str, "" if ground_truth is None else str(ground_truth))
'''

OPENRLHF = '''
ROLLOUTS = RolloutFile(FOLDER / "rollouts" / "rollouts.jsonl", RESPONSES_PER_STEP)


def reward_func(queries, prompts, labels, **others):
    """What OpenRLHF calls for each response; ``queries`` are prompts and responses in one text."""
    scores = []
    for query, prompt, label in zip(queries, prompts, labels):
        begins = query.startswith(prompt)
        response, stopped = REWARD.without_end(query[len(prompt) :] if begins else query.rpartition(prompt[-80:])[2])
        prompt = prompt.removeprefix(START)
        score = REWARD.score(prompt, response, "" if label is None else str(label), stopped=stopped)
        ROLLOUTS.write(prompt, response, REWARD.length(response, stopped), score, stopped)
        scores.append(score)
    rewards = [score["score"] for score in scores]
    parts = {name: [score[name] for score in scores] for name in scores[0] if name != "score"}
    if len(scores) == 1:  # as OpenRLHF 0.11 asks
        return {"rewards": rewards[0], "scores": rewards[0], "extra_logs": {name: values[0] for name, values in parts.items()}}
    return {"rewards": rewards, "scores": rewards, "extra_logs": parts}
'''
ENTRIES = {"verl": VERL, "openrlhf": OPENRLHF}
NOT_GIVEN = {"verl": ("tokens", "logprobs", "messages", "stopped"), "openrlhf": ("tokens", "logprobs", "messages")}
"""What a function of one's own may name here (docs/rewards.md) and is not told there."""
ALONE = """
if __name__ == "__main__":  # the score of one response: {"prompt": ..., "response": ..., "reference": ...} in a line on standard input
    print(json.dumps(REWARD.score(**json.loads(input()))))
"""


@dataclass(frozen=True)
class RewardFile:
    """What is written for the rewards.

    Attributes:
        files: name and content of each file: ``reward.py``, and functions of one's own beside it.
        needs: packages that it imports beside Python's own.
        counts_tokens: whether a rule looks at the number of tokens.
    """

    files: dict[str, bytes]
    needs: list[str]
    counts_tokens: bool


def reward_problems(settings: RewardConfig) -> Iterator[Problem]:
    """Components that no file can say, and rewards that are neither one reward model nor rules alone."""
    models = [part for part in settings.components if part.kind == "reward_model"]
    if models and len(settings.components) == 1:
        return
    for number, part in enumerate(settings.components):
        if part.kind in SOURCES:
            continue
        what = S_("a reward model is handed over only where it is the one component") if part.kind == "reward_model" else _why_not(part)
        yield Problem(f"reward.components.{number}", f"{what}; leave it out, or write your own function and name it as a python component")


def _why_not(part: Component) -> str:
    kind = type(part).model_fields["kind"].default
    return S_(f"a component of the kind {kind} cannot be written as a function of one response")


def write_reward(
    settings: RewardConfig,
    names: Sequence[str],
    engine: str,
    permissions: Permissions,
    *,
    tokenizer: str,
    ends: list[str],
    most: int,
    step: int,
    start: str,
) -> RewardFile:
    """The file for rules and functions.

    ``step``: responses in a step. ``start``: what stands in front of every prompt for OpenRLHF. The rest is as in ``HandedReward``.

    What :func:`own_problems` names must have been mended.
    """
    rules = settings.components
    sources = [SOURCES[part.kind] for part in rules]
    needs = sorted({package for source in sources for package in source.needs if package != "regex" or _uses_regex(rules)})
    by_length = any(type(part).counts_tokens or _is_own(part) for part in settings.components)
    counts = by_length or bool(settings.length_penalty) or engine == "openrlhf"
    own = {f"own_{number}.py": _own_file(part, permissions) for number, part in enumerate(settings.components) if _is_own(part)}
    shape = {name: getattr(settings, name) for name in ("score_clip", "length_penalty", "missing_eos_penalty", "missing_eos_mode")}
    lines = [
        _head(engine, sources, needs),
        _definition(ERRORS, "ComponentError"),
        *_copied(sources),
        _without_head(HANDED),
        _bundled_words() if any(part.kind == "lexicon" for part in rules) else "",
        "FOLDER = Path(__file__).resolve().parent",
        f"RESPONSES_PER_STEP = {step}\nSTART = {start!r}",
        _parts(settings, names),
        f"REWARD = HandedReward(\n    PARTS,\n    {shape!r},\n    {tokenizer if counts else ''!r},\n    {ends!r},\n    {most},\n)",
        ENTRIES[engine].strip(),
        ALONE,
    ]
    text = "\n\n\n".join(line.strip("\n") for line in lines if line) + "\n"
    _no_name_twice(text)
    return RewardFile({"reward.py": text.encode(), **own}, needs, counts)


def _is_own(part: Component) -> bool:
    return isinstance(part, PythonReward)


def _uses_regex(rules: Sequence[Component]) -> bool:
    return any(isinstance(part, RegexReward) or getattr(part, "compare", "") == "regex" for part in rules)


def _head(engine: str, sources: Sequence[Source], needs: Sequence[str]) -> str:
    """What the file is, and what the copied sources import of Python itself and of the packages that they need."""
    packages = f" It needs {', '.join(needs)}." if needs else ""
    nodes = [node for path in {HANDED, *(path for source in sources for path, _ in source.parts)} for node in _body(path)]
    modules: dict[ast.stmt, str] = {node: node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {node: node.names[0].name for node in nodes if isinstance(node, ast.Import)}
    known = {*sys.stdlib_module_names, *needs} - {"__future__"}
    lines = {ast.unparse(node) for node, module in modules.items() if module.partition(".")[0] in known}
    doc = f"The reward of a run of RLHF Studio, for {engine}. Nothing of RLHF Studio is needed.{packages}"
    imports = "\n".join(sorted({*lines, "from types import SimpleNamespace"}, key=lambda line: (line.startswith("from"), line)))
    return f'"""{doc}"""\n\nfrom __future__ import annotations\n\n{imports}'


@cache
def _body(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(encoding="utf-8")).body


def _copied(sources: Sequence[Source]) -> Iterator[str]:
    """The source of the rules, each part once."""
    wanted = dict.fromkeys((path, name) for source in sources for path, names in source.parts for name in names or ("",))
    for path, name in wanted:
        yield _definition(path, name) if name else _without_head(path)


def _definition(path: Path, name: str) -> str:
    """A function, or the value of a name, as it stands in a file; without what decorates it."""
    text = path.read_text(encoding="utf-8")
    for node in _body(path):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if name in [getattr(node, "name", ""), *(getattr(target, "id", "") for target in targets)]:
            return ast.get_source_segment(text, node) or ""
    raise LookupError(f"{path.name} defines no {name}")


def _without_head(path: Path) -> str:
    """A file without its docstring and its imports."""
    text = path.read_text(encoding="utf-8")
    body = [node for node in _body(path) if not isinstance(node, ast.Import | ast.ImportFrom)]
    first = body[1].lineno if isinstance(body[0], ast.Expr) else body[0].lineno
    first -= len(getattr(body[1] if isinstance(body[0], ast.Expr) else body[0], "decorator_list", []))
    return "\n".join(text.splitlines()[first - 1 :])


def _bundled_words() -> str:
    words = {side: _definition_of_words(side) for side in ("positive", "negative")}
    return (
        f'BUNDLED = {words!r}\n\n\ndef bundled_words(name):\n    """The words of one side."""\n    return frozenset(BUNDLED[name].split())'
    )


def _definition_of_words(side: str) -> str:
    lines = (KINDS / "words" / f"{side}.txt").read_text(encoding="utf-8").splitlines()
    return " ".join(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def _parts(settings: RewardConfig, names: Sequence[str]) -> str:
    rows = []
    for number, (name, part) in enumerate(zip(names, settings.components, strict=True)):
        source = SOURCES[part.kind]
        if isinstance(part, PythonReward):
            rule = f'functools.partial({source.function}, function_in(FOLDER / "own_{number}.py", {part.function!r}))'
        else:
            rule = f"{source.function}(SimpleNamespace(**{_plain_settings(part)!r}))"
        rows.append(f"    ({name!r}, {part.weight!r}, {source.takes!r}, {rule}),")
    return "PARTS = [\n" + "\n".join(rows) + "\n]"


def _plain_settings(part: Component) -> dict[str, Any]:
    return part.model_dump(exclude={"name", "weight", "kind"})


def _own_file(part: Component, permissions: Permissions) -> bytes:
    assert isinstance(part, PythonReward)
    path = permissions.allowed_file(part.file)
    assert path is not None  # see own_problems
    return read_regular(path)


def own_problems(settings: RewardConfig, engine: str, permissions: Permissions) -> Iterator[Problem]:
    """Functions whose file is not allowed or cannot be read, and those that ask for what the engine has not got."""
    for number, part in enumerate(settings.components):
        if not isinstance(part, PythonReward):
            continue
        field = f"reward.components.{number}"
        if problems := list(part.problems(permissions)):
            yield from (Problem(f"{field}.{problem.setting}", problem.message) for problem in problems)
            continue
        needed = _needed(ast.parse(_own_file(part, permissions)), part.function)
        if asked := [name for name in NOT_GIVEN[engine] if name in needed]:
            message = S_(f"{part.function} asks for {', '.join(asked)}, which {engine} does not give a reward function")
            yield Problem(f"{field}.function", f"{message}; leave it out, or give it a default value")


def _needed(tree: ast.Module, name: str) -> set[str]:
    """The parameters without a default of the function of that name, where the file defines one."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            own = node.args
            given = [*own.posonlyargs, *own.args]
            needed = given[: len(given) - len(own.defaults)] + [
                each for each, default in zip(own.kwonlyargs, own.kw_defaults, strict=True) if default is None
            ]
            return {each.arg for each in needed}
    return set()


def _no_name_twice(text: str) -> None:
    """Two files of ours may use a name for different things; here they would be one."""
    names = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    doubles = {name for name in names if names.count(name) > 1}
    if doubles:
        raise LookupError(f"copied twice with different meanings: {', '.join(sorted(doubles))}")
