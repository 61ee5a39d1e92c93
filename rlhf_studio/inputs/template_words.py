"""What a chat template may use beside jinja's own words, as transformers has them, and without ways out of the sandbox."""

from __future__ import annotations

import json
from typing import Any


class PlainDict:
    """``dict`` for templates: not the class itself, whose attributes lead on to others."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


def plain_namespace() -> type:
    """``namespace`` for templates, without names that begin with an underscore."""
    from jinja2.exceptions import SecurityError
    from jinja2.utils import Namespace

    class PlainNamespace(Namespace):
        def __init__(*args: Any, **kwargs: Any) -> None:  # no parameter names, so that a template may use any
            own, *rest = args
            attributes = dict(*rest, **kwargs)
            for name in attributes:
                _check_name(name)
            Namespace.__init__(own, attributes)

        def __setitem__(self, name: str, value: Any) -> None:
            _check_name(name)
            Namespace.__setitem__(self, name, value)

    def _check_name(name: Any) -> None:
        if str(name).startswith("_"):
            raise SecurityError(f"a namespace takes no name like {name!r}")

    return PlainNamespace


def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
    """jinja2's own would escape HTML characters."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def refuse(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)
