"""What leaves this machine in a file carries neither secrets nor the paths of the machine: of a path only its last part stays."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import groupby, islice
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from rlhf_studio.config import RunConfig

PATH_SETTINGS = {"model": ("policy", "reference"), "data": ("prompts", "eval"), "critic": ("model",), "engine": ("accelerate_config",)}
"""Settings that may name a folder or a file of this machine, by section."""
PATH_SETTINGS_OF_COMPONENTS = ("model", "models", "file")
"""The same of reward components; ``models`` holds several, separated by commas or line breaks."""

_SECRET = re.compile(r"\b(hf_|sk-|ghp_)[A-Za-z0-9_-]{8,}")
_USER = re.compile(r"(?<=://)[^/@\s]*@")
_AFTER_PATH = re.compile(r"(?<=[^\s?#])[?#]\S*")
_PART = r"(?:/[^\s/'\"`,;:()\[\]{}<>|]+)"
_BEFORE = r"(?<![^\s'\"`(\[{=,;:<>|])"  # a path begins a word: not the second half of "and/or", nor of an address


def without_secrets(text: str) -> str:
    """The text without access tokens of well-known services, and without names and passwords in addresses."""
    return _USER.sub("", _SECRET.sub(lambda match: match.group(1) + "\u2026", text))


def pieces_without_secrets(pieces: Sequence[str]) -> list[str]:
    """The pieces of a text, such as its tokens, with an ellipsis for whatever in them is part of a secret of that text."""
    text = "".join(pieces)
    hidden = [(match.end(1), match.end()) for match in _SECRET.finditer(text)] + [match.span() for match in _USER.finditer(text)]
    if not hidden:
        return list(pieces)
    places = {place for begin, end in hidden for place in range(begin, end)}
    rest = enumerate(text)
    runs = (groupby(islice(rest, len(piece)), lambda sign: sign[0] in places) for piece in pieces)
    return ["".join("\u2026" if secret else "".join(sign for _, sign in run) for secret, run in own) for own in runs]


def shareable(value: str) -> str:
    """A setting's text as others may see it: of a path on this machine only the last part, of an address no password and no query."""
    plain = without_secrets(value)
    if "://" in plain:
        return _AFTER_PATH.sub("", plain)
    if plain.startswith(("/", "~", "./", "../")) or PureWindowsPath(plain).drive or "\\" in plain:
        return PurePosixPath(plain.replace("\\", "/")).name or plain
    return plain


def shareable_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """A configuration as ``model_dump`` gives it, without secrets in its texts. Paths in :data:`PATH_SETTINGS` are made :func:`shareable`.

    It stays a valid configuration.
    """
    safe: dict[str, Any] = _each_text(settings, without_secrets)
    for section in PATH_SETTINGS.keys() & safe.keys():
        names = PATH_SETTINGS[section]
        safe[section] |= {name: shareable(safe[section][name]) for name in names if name in safe.get(section, {})}
    if "reward" in safe:
        safe["reward"]["components"] = [_shareable_component(component) for component in safe["reward"].get("components", [])]
    return safe


def _shareable_component(component: dict[str, Any]) -> dict[str, Any]:
    given = {name: component[name] for name in PATH_SETTINGS_OF_COMPONENTS if name in component}
    return component | {name: "".join(map(shareable, re.split(r"(\s*[,\n]\s*)", value))) for name, value in given.items()}


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    """JSON data anew, with ``change`` done to every text in it, names of members among them."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _each_text(item, change) for key, item in value.items()}
    return [_each_text(item, change) for item in value] if isinstance(value, list) else value


class Shareable:
    """Makes texts and data of one run shareable: any absolute path in them ends as its last part.

    The folders of the run and of the person are known by name, so that they are found where they hold blanks too.
    """

    def __init__(self, run_dir: Path):
        folders = {*Path(run_dir).resolve().parents, Path(run_dir).resolve(), Path.home(), Path.cwd(), *Path.cwd().parents}
        known = sorted((str(folder) for folder in folders if len(folder.parts) > 1), key=len, reverse=True)
        self._paths = re.compile(rf"{_BEFORE}(?:(?:{'|'.join(map(re.escape, known))}|~)(?![\w-]){_PART}*|{_PART}{{2,}})/?")

    def text(self, text: str) -> str:
        """The text with its paths shortened; everything around them stays."""
        return self._paths.sub(lambda match: PurePosixPath(match[0]).name, without_secrets(text))

    def settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        """A whole configuration: :func:`shareable_settings`, and the run's name as a text."""
        return shareable_settings(settings) | {"name": self.text(settings["name"])}

    def data(self, value: Any) -> Any:
        """JSON data: every text in it, a list of texts as the pieces of one, and a whole configuration under the name ``settings``."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.settings(item) if _is_configuration(key, item) else self.data(item) for key, item in value.items()}
        if not isinstance(value, list):
            return value
        pieces = bool(value) and all(isinstance(item, str) for item in value)
        return [self.data(item) for item in (pieces_without_secrets(value) if pieces else value)]


def _is_configuration(key: str, value: Any) -> bool:
    return key == "settings" and isinstance(value, dict) and set(RunConfig.model_fields) <= value.keys()
