"""The text of a lesson: Markdown with scenes, as a tree of plain data that a page draws.

    # When a token stops pushing            the title
    The introduction, without numbers.

    :::scene dead_zones                     what follows belongs to this scene, up to the next one
    ## A heading
    The ratio is [[ratio:.2f]].             a slot: a number of the scene, in Python's format language; never an expression

    :::controls                             what can be changed here, and what it is called
    ratio: Ratio $\\rho$
    :::
    :::picture plane                        a picture of the scene; the text inside says what is seen
    The token's place …
    :::
    :::predict pushes                       a question whose answer is a number or word of the scene; what follows it waits for the answer
    Does the token still push?
    - yes: Yes, because …
    - no: No, because …
    :::
    :::code ppo.losses.policy_loss          our own code, by symbol
    from: ratio =
    to: clipped =
    :::
    :::words                                what the scenes' words are called in this language
    silent: is silent
    :::

Formulas stand between ``$`` or ``$$``. Links lead to ``lesson:clip``, to a scene of it (``lesson:clip#ratio``), to ``tour:gae``,
``place:teach``, ``term:values``, ``tab:train`` or a web page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from rlhf_studio.lessons.kit.code import coloured, excerpt
from rlhf_studio.lessons.kit.formula import formula

Block = dict[str, Any]
Inline = str | dict[str, Any]

_SLOT = re.compile(r"\[\[(\w+)(?::([^\]\[{}]*))?\]\]")
_PIECE = re.compile(r"\[\[\w+(?::[^\]\[{}]*)?\]\]|\$[^$\n]+\$")
_ITEM = re.compile(r"^(?:- )?([\w.\-]+): (.*)$")
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
_DIRECTIVES = ("controls", "picture", "predict", "code", "words")


class TextError(ValueError):
    """What is wrong in a lesson's text, and in which line."""


@dataclass
class SceneText:
    """What the text says of a scene: ``blocks`` to draw, and ``slots``: the key of each slot, with its number and format."""

    name: str
    blocks: list[Block] = field(default_factory=list)
    slots: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass
class LessonText:
    """A whole text. ``introduction`` are the blocks before the first scene."""

    title: str = ""
    introduction: list[Block] = field(default_factory=list)
    scenes: list[SceneText] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        scenes = [{"name": scene.name, "blocks": scene.blocks} for scene in self.scenes]
        return {"title": self.title, "introduction": self.introduction, "scenes": scenes, "words": self.words}


def read_text(source: str) -> LessonText:
    """Read a lesson's text. Raises :class:`TextError`, and CodeError for code that is not there."""
    text, scene, plain = LessonText(), SceneText(""), list[str]()

    def flush() -> None:
        for block in _markdown("\n".join(plain), scene):
            if block["kind"] == "title":
                text.title = block["text"]
            else:
                (scene.blocks if scene.name else text.introduction).append(block)
        plain.clear()

    for number, name, argument, body in _parts(source):
        if name == "":
            plain.extend(body)
            continue
        flush()
        if name == "scene":
            scene = SceneText(argument)
            text.scenes.append(scene)
        elif name == "words":
            text.words |= dict(_items(body, number))
        elif not scene.name:
            raise TextError(f"line {number}: :::{name} stands before the first :::scene")
        else:
            scene.blocks.append(_directive(name, argument, body, scene, number))
    flush()
    return text


def _parts(source: str) -> Iterator[tuple[int, str, str, list[str]]]:
    """Line number, directive (empty for Markdown), its argument, and its lines."""
    lines = iter(enumerate(source.splitlines(), 1))
    for number, line in lines:
        if not line.startswith(":::"):
            yield number, "", "", [line]
            continue
        name, _, argument = line[3:].strip().partition(" ")
        if name == "scene":
            yield number, name, argument.strip(), []
            continue
        if name not in _DIRECTIVES:
            raise TextError(f"line {number}: :::{name} is none of scene, {', '.join(_DIRECTIVES)}")
        body = []
        for _, inner in lines:
            if inner.strip() == ":::":
                break
            body.append(inner)
        else:
            raise TextError(f"line {number}: :::{name} has no end, a line with ::: alone")
        yield number, name, argument.strip(), body


def _directive(name: str, argument: str, body: list[str], scene: SceneText, number: int) -> Block:
    if name == "controls":
        return {"kind": "controls", "items": [{"name": key, "label": _inline(value, scene)} for key, value in _items(body, number)]}
    if name == "picture":
        return {"kind": "picture", "name": argument, "caption": _inline(" ".join(line.strip() for line in body), scene)}
    if name == "predict":
        first = next((index for index, line in enumerate(body) if line.startswith("- ")), len(body))
        question = [line.strip() for line in body[:first]]
        answers = [[key, _inline(value, scene)] for key, value in _items(body[first:], number)]
        if not answers:
            raise TextError(f"line {number}: :::predict {argument} has no answers")
        scene.slots[argument] = (argument, "")
        return {"kind": "predict", "slot": argument, "question": _inline(" ".join(question).strip(), scene), "answers": answers}
    options = dict(_items(body, number))
    if not options.keys() <= {"from", "to", "package"}:
        raise TextError(f"line {number}: :::code takes from, to and package, but has {', '.join(options)}")
    begin, end = (options.get(key, "").strip("`") for key in ("from", "to"))
    code = excerpt(argument, begin, end, **({"package": options["package"]} if "package" in options else {}))
    return {"kind": "code", **code.as_data()}


def _items(body: list[str], number: int) -> list[tuple[str, str]]:
    items: list[tuple[str, str]] = []
    for line in (line for line in body if line.strip()):
        if line.startswith("  ") and items:  # a longer value goes on in the next line
            items[-1] = (items[-1][0], f"{items[-1][1]} {line.strip()}")
            continue
        match = _ITEM.match(line.strip())
        if match is None:
            raise TextError(f"line {number}: {line.strip()!r} is not of the form 'name: text'")
        items.append((match[1], match[2]))
    return items


def read_markdown(source: str) -> list[Block]:
    """The blocks of a plain Markdown text, without scenes, slots and formulas. Raises :class:`TextError` for what pages do not draw."""
    return _blocks(_MARKDOWN.parse(source), SceneText(""))


# --- Markdown ----------------------------------------------------------------------------------------------------------------


def _markdown(source: str, scene: SceneText) -> list[Block]:
    """Blocks of plain Markdown; display formulas stand alone between ``$$``."""
    blocks: list[Block] = []
    for number, part in enumerate(re.split(r"\$\$(.+?)\$\$", source, flags=re.DOTALL)):
        if number % 2:
            blocks.append({"kind": "formula", "tree": formula(" ".join(part.split()), display=True)})
        else:
            tokens = _MARKDOWN.parse(_protected(part))
            blocks += _blocks(tokens, scene)
    return blocks


def _protected(source: str) -> str:
    """Slots and formulas as code spans, so that Markdown leaves their characters alone; :func:`_inline_of` takes them out again."""
    return _PIECE.sub(lambda match: f"`\ue000{match[0]}`", source)


def _inline(source: str, scene: SceneText) -> list[Inline]:
    return _inline_of(_MARKDOWN.parseInline(_protected(source))[0].children or [], scene)


def _blocks(tokens: list[Token], scene: SceneText) -> list[Block]:
    blocks, stack, rest = list[Block](), list[Block](), iter(tokens)
    target = blocks
    for token in rest:
        if token.type == "heading_open":
            content = next(rest)
            if token.tag == "h1":
                blocks.append({"kind": "title", "text": content.content})
            else:
                blocks.append({"kind": "heading", "content": _inline_of(content.children or [], scene), "level": int(token.tag[1:])})
        elif token.type == "fence":
            target.append({"kind": "listing", "lines": coloured(token.content.rstrip("\n"), token.info.strip() or "text")})
        elif token.type == "inline":
            target.append({"kind": "paragraph", "content": _inline_of(token.children or [], scene)})
        elif token.type in ("bullet_list_open", "ordered_list_open", "list_item_open", *_TABLE):
            block: Block = {"kind": _TABLE.get(token.type) or token.type.removesuffix("_open"), "items": []}
            target.append(block)
            stack.append(block)
            target = block["items"]
        elif token.type.endswith("_close") and stack and token.type.removesuffix("_close") + "_open" in (*_TABLE, *_LISTS):
            stack.pop()
            target = stack[-1]["items"] if stack else blocks
        elif token.type not in _WITHOUT_MEANING:
            raise TextError(f"lessons have no {token.type.replace('_open', '').replace('_', ' ')}")
    return blocks


_LISTS = ("bullet_list_open", "ordered_list_open", "list_item_open")
_WITHOUT_MEANING = ("paragraph_open", "paragraph_close", "heading_close", "thead_open", "thead_close", "tbody_open", "tbody_close")
_TABLE = {"table_open": "table", "tr_open": "row", "th_open": "header", "td_open": "cell"}


def _inline_of(tokens: list[Token], scene: SceneText) -> list[Inline]:
    inline: list[Inline] = []
    stack: list[list[Inline]] = [inline]
    for token in tokens:
        if token.type == "text":
            stack[-1].append(token.content)
        elif token.type in ("softbreak", "hardbreak"):
            stack[-1].append(" ")
        elif token.type == "code_inline":
            stack[-1].append(_code(token.content, scene))
        elif token.type in ("strong_open", "em_open", "link_open"):
            children: list[Inline] = []
            more = {"to": str(token.attrs["href"])} if token.type == "link_open" else {}
            stack[-1].append({"kind": token.type.removesuffix("_open"), "content": children, **more})
            stack.append(children)
        elif token.type in ("strong_close", "em_close", "link_close"):
            stack.pop()
        else:
            raise TextError(f"lessons have no {token.type}")
    return [piece for piece in inline if piece != ""]


def _code(content: str, scene: SceneText) -> Inline:
    if not content.startswith("\ue000"):
        return {"kind": "code", "text": content}
    content = content[1:]
    if slot := _SLOT.fullmatch(content):
        key = content[2:-2]
        scene.slots[key] = (slot[1], slot[2] or "")
        return {"kind": "slot", "key": key}
    return {"kind": "formula", "tree": formula(content[1:-1])}
