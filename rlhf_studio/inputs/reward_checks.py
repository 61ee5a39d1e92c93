"""What can be known to be wrong with the reward components before anything is loaded."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from rlhf_studio.config import (
    NOTHING_ALLOWED,
    BleuReward,
    EnsembleReward,
    HttpReward,
    KeywordReward,
    LexiconReward,
    Permissions,
    PythonReward,
    RegexReward,
    RewardComponent,
    RewardModelReward,
    RougeReward,
    RunConfig,
)
from rlhf_studio.config_io import ConfigError, Problem
from rlhf_studio.inputs.chat import ChatError, find_template
from rlhf_studio.inputs.models.facts import ModelFacts, check_reward_model
from rlhf_studio.inputs.models.files import Hub, ModelError

LARGEST_FILE = 10_000_000


def check_rewards(
    config: RunConfig, hub: Hub | None, problems: list[Problem], permissions: Permissions = NOTHING_ALLOWED
) -> list[ModelFacts]:
    """Facts of the reward models that can be used; what is wrong goes to ``problems``."""
    facts = []
    seen: dict[str, int] = {}
    for index, component in enumerate(config.reward.components):
        field_name = f"reward.components.{index}"
        name = component.name or component.kind
        if name in seen:
            message = f"component {seen[name] + 1} is called {name} too; give each its own name, so that their curves can be told apart"
            problems.append(Problem(f"{field_name}.name", message))
        seen.setdefault(name, index)
        facts += check_component(component, field_name, hub, problems, permissions)
        if isinstance(component, BleuReward | RougeReward) and not config.data.reference_column:
            message = f"component {index + 1} ({component.kind}) compares with a reference text; name the column that holds one"
            problems.append(Problem("data.reference_column", message))
    return facts


def refuse_without_permission(components: Sequence[RewardComponent], permissions: Permissions) -> None:
    """Code and servers of the person's own must be allowed at each start: asked here before anything large is loaded.

    Raises :class:`ConfigError`.
    """
    problems: list[Problem] = []
    for index, component in enumerate(components):
        if isinstance(component, PythonReward | HttpReward):
            check_component(component, f"reward.components.{index}", None, problems, permissions)
    if problems:
        raise ConfigError(problems)


def check_component(
    component: RewardComponent, field_name: str, hub: Hub | None, problems: list[Problem], permissions: Permissions
) -> list[ModelFacts]:
    """The same for one component by itself."""
    if isinstance(component, RewardModelReward | EnsembleReward):
        return _models(component, field_name, hub, problems)
    checks: dict[type, Callable[..., Iterator[Problem]]] = {
        RegexReward: _pattern_problems,
        KeywordReward: _keyword_problems,
        LexiconReward: _lexicon_problems,
        PythonReward: _python_problems,
        HttpReward: _server_problems,
    }
    check = checks.get(type(component))
    if check is not None:
        problems.extend(check(component, field_name, permissions))
    return []


def _models(component: RewardModelReward | EnsembleReward, field_name: str, hub: Hub | None, problems: list[Problem]) -> list[ModelFacts]:
    names = [component.model] if isinstance(component, RewardModelReward) else component.model_names()
    if isinstance(component, EnsembleReward):
        if len(names) < 2:
            message = "an ensemble needs at least two models, separated by commas or line breaks; for one use a reward model component"
            problems.append(Problem(f"{field_name}.models", message))
        if doubles := sorted({name for name in names if names.count(name) > 1}):
            problems.append(Problem(f"{field_name}.models", f"{doubles[0]} is named twice; each model counts once"))
    facts = []
    for name in dict.fromkeys(names):
        try:
            facts.append(check_reward_model(name, component.revision, component.label, hub))
            if component.chat_template == "own" and find_template(facts[-1].tokenizer_files) is None:
                message = f"{name} has no chat template; use policy, or a model trained on chats"
                problems.append(Problem(f"{field_name}.chat_template", message))
        except ChatError as error:
            problems.append(Problem(f"{field_name}.chat_template", str(error)))
        except ModelError as error:
            setting = "models" if error.setting == "model" and isinstance(component, EnsembleReward) else error.setting
            problems.append(Problem(f"{field_name}.{setting}", str(error)))
    return facts


def _pattern_problems(component: RegexReward, field_name: str, permissions: Permissions) -> Iterator[Problem]:
    import regex

    try:
        regex.compile(component.pattern)
    except regex.error as error:
        yield Problem(f"{field_name}.pattern", f"is not a valid regular expression: {error}")


def _keyword_problems(component: KeywordReward, field_name: str, permissions: Permissions) -> Iterator[Problem]:
    if not any(word.strip() for word in component.words.split(",")):
        yield Problem(f"{field_name}.words", "there are no words between the commas; write for example: good, lovely")


def _lexicon_problems(component: LexiconReward, field_name: str, permissions: Permissions) -> Iterator[Problem]:
    both = {}
    for setting in ("positive", "negative"):
        both[setting] = [word.strip() for word in getattr(component, setting).split(",") if word.strip()]
        for word in both[setting]:
            if len(word.split()) > 1:
                yield Problem(f"{field_name}.{setting}", f"{word[:60]!r} is more than one word; separate words with commas")
    if shared := sorted(set(both["positive"]) & set(both["negative"])):
        yield Problem(f"{field_name}.negative", f"{shared[0]!r} is among the positive words too; keep one")
    if not component.use_bundled and not any(both.values()):
        yield Problem(f"{field_name}.positive", "without the bundled words, words of your own are needed; write for example: good, lovely")


def _python_problems(component: PythonReward, field_name: str, permissions: Permissions) -> Iterator[Problem]:
    if not component.file:
        yield Problem(f"{field_name}.file", "name the Python file that holds the function")
        return
    path = permissions.allowed_file(component.file)
    if path is None:
        flag = f"--allow-custom-rewards {component.file}"
        yield Problem(f"{field_name}.file", f"{component.file} is not allowed here; start the program with {flag}")
        return
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read(LARGEST_FILE), filename=component.file)
    except OSError as error:
        yield Problem(f"{field_name}.file", f"{component.file} cannot be read: {error.strerror or error}")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        yield Problem(f"{field_name}.file", f"{component.file} is not valid Python: {getattr(error, 'msg', error)}{line}")
    else:
        if component.function not in set(_names(tree)):
            yield Problem(f"{field_name}.function", f"{component.file} defines no {component.function}; it must, at its top level")


def _names(tree: ast.Module) -> Iterator[str]:
    """Every name that some statement of the file binds. Those inside functions are among them: what is found here need not be usable."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.split(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _server_problems(component: HttpReward, field_name: str, permissions: Permissions) -> Iterator[Problem]:
    if component.server in permissions.urls:
        return
    known = f"; known here: {', '.join(permissions.urls)}" if permissions.urls else ""
    if component.server:
        message = f"no server is called {component.server}; start the program with --reward-url {component.server}=URL{known}"
    else:
        message = f"name the scoring server{known or '; start the program with --reward-url NAME=URL'}"
    yield Problem(f"{field_name}.server", message)
