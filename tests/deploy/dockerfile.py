"""A small reader of the Dockerfile and of .dockerignore: what the tests of the container look at.

It knows the instructions and the forms that our Dockerfile uses, and refuses every other, so that nothing is passed over in silence.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
KNOWN = {"FROM", "RUN", "ARG", "WORKDIR", "COPY", "ENV", "VOLUME", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


@dataclass(frozen=True)
class Instruction:
    """One instruction, such as ``COPY`` with what follows it; lines that were continued are one."""

    name: str
    text: str

    def words(self) -> list[str]:
        """What follows, as the list of words that it is; for ``HEALTHCHECK`` the words of its command."""
        if self.name == "HEALTHCHECK":
            return [str(word) for word in json.loads(self.text.partition(" CMD ")[2])]
        return [str(word) for word in json.loads(self.text)] if self.text.startswith("[") else self.text.split()

    def pairs(self) -> dict[str, str]:
        """The variables of ``ENV`` or ``ARG`` by their names."""
        return dict(word.split("=", 1) for word in self.words())


def read(path: Path = ROOT / "Dockerfile") -> list[Instruction]:
    """The instructions in their order. Raises ValueError for one that is not known here."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    text = "\n".join(line for line in lines if line and not line.startswith("#")).replace("\\\n", " ")
    found = [Instruction(*line.split(" ", 1)) for line in text.splitlines()]
    for instruction in found:
        if instruction.name not in KNOWN:
            raise ValueError(f"{instruction.name} is not known to the tests' reader")
    return [Instruction(one.name, re.sub(r"\s+", " ", one.text)) for one in found]


def environment(instructions: list[Instruction]) -> dict[str, str]:
    """What ``ENV`` sets, all together."""
    return {name: value for one in instructions if one.name == "ENV" for name, value in one.pairs().items()}


def only(instructions: list[Instruction], name: str) -> Instruction:
    """The one instruction of this name. Raises ValueError when there is none, or more than one."""
    (found,) = [one for one in instructions if one.name == name]
    return found


# --- .dockerignore --------------------------------------------------------------------------------------------------------------


def _pattern(rule: str) -> re.Pattern[str]:
    """One rule as Docker reads it: from the root of the folder, ``*`` within one name, ``**/`` any folders; what lies below too."""
    parts = [".*" if part == "**" else re.escape(part).replace(r"\*", "[^/]*") for part in PurePosixPath(rule).parts]
    return re.compile("/".join(parts).replace(".*/", "(?:.*/)?") + "(?:/.*)?")


def is_ignored(path: str, rules: list[str]) -> bool:
    """Whether a file stays out of the image: the last rule that speaks of it decides."""
    ignored = False
    for rule in rules:
        if _pattern(rule.lstrip("!")).fullmatch(path):
            ignored = not rule.startswith("!")
    return ignored


def rules(path: Path = ROOT / ".dockerignore") -> list[str]:
    """The rules of a .dockerignore."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def files(root: Path = ROOT) -> list[str]:
    """The files of a checkout: those that git keeps, and new ones that it would not ignore; without git, all of them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0:
        return sorted(name for name in listed.stdout.split("\0") if name and (root / name).is_file())
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() and ".venv" not in path.parts)


def context() -> Iterator[str]:
    """The files that ``COPY . ./`` copies."""
    known = rules()
    return (name for name in files() if not is_ignored(name, known))
