"""Reward components that ask something outside the program. What they may ask is given when the program is started, never in settings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from rlhf_studio.config.base import setting
from rlhf_studio.config.permissions import Permissions
from rlhf_studio.config.reward_base import Component, ComponentProblem
from rlhf_studio.language import S_
from rlhf_studio.regular import open_regular

LARGEST_FILE = 10_000_000  # bytes of a person's Python file that are read


class PythonReward(Component):
    """A function of your own, score(prompts, responses, **extra), in a process of its own. Start with --allow-custom-rewards FILE."""

    title = "Python function"
    group = "Your own"
    outside = True

    kind: Literal["python"] = "python"
    file: str = setting(
        "", "Python file", "The file that holds the function. The program must be started with --allow-custom-rewards and this file.",
        level="basic", names="code", max_length=4096,
    )  # fmt: skip
    function: str = setting(
        "score", "Function", "Its name. It is called with all prompts and responses of a batch and gives a list with one number each.",
        level="basic", min_length=1, max_length=200, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        allowed=S_("the name of a function: letters, digits and _, with no digit at the beginning"),
    )  # fmt: skip
    timeout: float = setting(
        60.0, "Time limit", "Longest time for one batch; then the process is ended and the run stops with a message.", unit="seconds",
        level="basic", gt=0, le=86_400,
    )  # fmt: skip

    def files(self) -> list[str]:
        """The person's file."""
        return [self.file]

    def start_flags(self) -> list[tuple[str, str]]:
        """The file must be allowed."""
        return [("--allow-custom-rewards", self.file)] if self.file else []

    @classmethod
    def suggestions(cls, permissions: Permissions) -> dict[str, list[str]]:
        """The files that are allowed."""
        return {"file": list(dict.fromkeys(permissions.files))}

    def described(self) -> str:
        """The function's name."""
        return S_(f"the function {self.function}")

    def problems(self, permissions: Permissions) -> Iterator[ComponentProblem]:
        """A file that is not allowed, cannot be read, is not Python or binds no such name. The file is read, not run."""
        if not self.file:
            yield ComponentProblem("file", S_("name the Python file that holds the function"))
            return
        path = permissions.allowed_file(self.file)
        if path is None:
            flag = f"--allow-custom-rewards {self.file}"
            yield ComponentProblem("file", S_(f"{self.file} is not allowed here; start the program with {flag}"))
            return
        try:
            with open_regular(path) as file:
                tree = ast.parse(file.read(LARGEST_FILE), filename=self.file)
        except OSError as error:
            yield ComponentProblem("file", S_(f"{self.file} cannot be read: {error.strerror or error}"))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
            yield ComponentProblem("file", S_(f"{self.file} is not valid Python: {getattr(error, 'msg', error)}{line}"))
        else:
            if self.function not in set(_bound_names(tree)):
                yield ComponentProblem("function", S_(f"{self.file} defines no {self.function}; it must, at its top level"))


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Every name that some statement of the file binds, also inside functions: a name that is found here may still be no function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.split(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


class ServerReward(Component):
    """What all kinds have in common that ask a server, which was named at the start with --reward-url NAME=URL."""

    group = "Your own"
    outside = True
    served_by: ClassVar[str] = S_("scoring server")  # in sentences for people

    if TYPE_CHECKING:
        # each kind declares these settings itself, with the help that says what its server must answer
        server: str
        timeout: float
        retries: int

    def start_flags(self) -> list[tuple[str, str]]:
        """The address must be given; it may hold a secret, so it is left to the person."""
        return [("--reward-url", f"{self.server}=URL")] if self.server else []

    @classmethod
    def suggestions(cls, permissions: Permissions) -> dict[str, list[str]]:
        """The servers' names, without their addresses."""
        return {"server": list(permissions.urls)}

    def problems(self, permissions: Permissions) -> Iterator[ComponentProblem]:
        """A server that was not named at the start."""
        if self.server in permissions.urls:
            return
        known = f"; known here: {', '.join(permissions.urls)}" if permissions.urls else ""
        if self.server:
            message = S_(f"no server is called {self.server}; start the program with --reward-url {self.server}=URL{known}")
        else:
            message = S_(f"name the {self.served_by}{known or '; start the program with --reward-url NAME=URL'}")
        yield ComponentProblem("server", message)


class HttpReward(ServerReward):
    """A scoring server that takes prompts and responses and answers with scores. Start with --reward-url NAME=URL."""

    title = "Scoring server"

    kind: Literal["http"] = "http"
    server: str = setting(
        "", "Server name", "The NAME of a --reward-url NAME=URL that the program was started with; settings never hold the address.",
        level="basic", max_length=100,
    )  # fmt: skip
    timeout: float = setting(30.0, "Time limit", "Longest time for one request.", unit="seconds", level="basic", gt=0, le=3600)
    retries: int = setting(
        3,
        "Retries",
        "How often a request is repeated when the server is out of reach, overloaded or failing (429, 5xx).",
        ge=0,
        le=20,
    )
    batch_size: int = setting(256, "Batch size", "Most responses in one request.", unit="texts", ge=1, le=4096)

    def described(self) -> str:
        """The server's name."""
        return S_(f"the server {self.server}")
