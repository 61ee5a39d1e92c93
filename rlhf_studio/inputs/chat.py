"""Chat templates: finding the one of a model in its files, and writing conversations with it.

A template is a small program that came with a model. It runs in jinja2's sandbox, set up as transformers does it, and in a helper
process with limited memory and time (``python -m rlhf_studio.inputs.chat``): the sandbox stops code, not cost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from rlhf_studio.inputs.error_text import first_line
from rlhf_studio.inputs.helper import HelperError, answer, ask_helper, read_task
from rlhf_studio.inputs.models.files import ModelFiles
from rlhf_studio.inputs.models.tokenizer_files import added_tokens

MODULE = "rlhf_studio.inputs.chat"
MEMORY_BYTES = 1024**3
SECONDS = 8.0  # for each pack of conversations
PACK = 500
PART_CHARACTERS = 10_000_000
MAX_CHARACTERS = 400_000
NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
Messages = list[dict[str, str]]
Marked = tuple[str, list[list[int]]]
"""A text, and where each answer begins and ends in it."""


class ChatError(ValueError):
    """A conversation cannot be written with this template; ``place`` is its index, None when the template itself is at fault."""

    def __init__(self, message: str, place: int | None = None):
        self.place = place
        super().__init__(message)


@dataclass(frozen=True)
class ChatTemplate:
    """A jinja2 template, the special tokens that it may name, and the texts of all tokens that the tokenizer keeps whole."""

    source: str = field(repr=False)
    tokens: tuple[tuple[str, str], ...] = ()
    kept_whole: tuple[str, ...] = field(default=(), repr=False)


def find_template(files: ModelFiles | None) -> ChatTemplate | None:
    """The template among a tokenizer's files, or None. Raises :class:`ChatError` for files that cannot be read."""
    if files is None:
        return None
    settings = {**_json(files, "special_tokens_map.json"), **_json(files, "tokenizer_config.json")}
    own_file = files.small("chat_template.jinja")
    try:
        source = own_file.read_text(encoding="utf-8") if own_file is not None else settings.get("chat_template")
    except (OSError, UnicodeDecodeError) as error:
        raise ChatError(f"chat_template.jinja of {files.name} cannot be read: {error}") from None
    if isinstance(source, list):  # several under names
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("default")
    if not isinstance(source, str):
        return None
    named = ((name, _content(settings.get(name))) for name in NAMED_TOKENS)
    tokenizer = files.small("tokenizer.json")
    kept_whole = () if tokenizer is None else tuple(added_tokens(tokenizer))
    return ChatTemplate(source, tuple((name, token) for name, token in named if isinstance(token, str)), kept_whole)


def _json(files: ModelFiles, file_name: str) -> dict[str, Any]:
    path = files.small(file_name)
    try:
        data = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
    except (OSError, ValueError, RecursionError):
        raise ChatError(f"{file_name} of {files.name} is not valid JSON") from None
    return data if isinstance(data, dict) else {}


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def render_chats(
    chat: ChatTemplate, conversations: list[Messages], tick: Callable[[], None] = lambda: None, *, answered: bool = False
) -> list[str]:
    """Each conversation as text, ending where the assistant begins to answer, or as it is when it is ``answered``.

    ``tick``: see :func:`ask_helper`. Raises :class:`ChatError`.
    """
    return [text for text, _ in _rendered(chat, conversations, tick, "answered" if answered else "open")]


def render_answers(
    chat: ChatTemplate, conversations: list[Messages], tick: Callable[[], None] = lambda: None
) -> list[tuple[str, list[tuple[int, int]]]]:
    """Each conversation as text, and where each part that the assistant is to write begins and ends in it.

    They are what the template marks with ``{% generation %}``; else they begin where a chat with the messages so far would be ready for
    its answer, and end where the chat with that answer would end. Raises :class:`ChatError`, also when neither can be told.
    """
    return [(text, [(first, end) for first, end in spans]) for text, spans in _rendered(chat, conversations, tick, "marked")]


def _rendered(chat: ChatTemplate, conversations: list[Messages], tick: Callable[[], None], how: str) -> list[Marked]:
    """``how``: open, answered or marked. The places are empty but for the last of these."""
    texts: list[Marked] = []
    for part in _parts(conversations):
        try:
            texts += _render_part(chat, part, tick, how)
        except ChatError as error:
            raise ChatError(str(error), None if error.place is None else len(texts) + error.place) from None
    return texts


def _parts(conversations: list[Messages]) -> Iterator[list[Messages]]:
    """The conversations in order, in parts of bounded size: a helper's memory follows from that of its part."""
    part: list[Messages] = []
    total = 0
    for messages in conversations:
        size = _size([messages])
        if part and total + size > PART_CHARACTERS:
            yield part
            part, total = [], 0
        part.append(messages)
        total += size
    if part:
        yield part


def _render_part(chat: ChatTemplate, conversations: list[Messages], tick: Callable[[], None], how: str) -> list[Marked]:
    task = {"source": chat.source, "tokens": dict(chat.tokens), "conversations": conversations, "how": how}
    texts: list[Marked] = []
    answers = ask_helper(MODULE, task, memory_bytes=MEMORY_BYTES + 20 * _size(conversations), seconds=SECONDS, tick=tick)
    try:
        for message in answers:
            if "problem" in message:
                raise ChatError(message["problem"], message["place"])
            texts += message["texts"]
    except HelperError as error:
        raise ChatError(f"the chat template does not work: {error}") from None
    finally:
        answers.close()
    return texts


def _size(conversations: list[Messages]) -> int:
    """Characters in all messages, with something for each message."""
    return sum(len(text) + 100 for messages in conversations for message in messages for text in message.values())


# --- inside the helper -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer with the texts, in packs, or with what is wrong."""
    task = read_task()
    try:
        render = COMPILED[task["how"]](task["source"], task["tokens"])
        conversations = task["conversations"]
        for first in range(0, len(conversations), PACK):
            answer({"texts": [_render(render, first, place, chat) for place, chat in enumerate(conversations[first : first + PACK])]})
    except ChatError as error:
        answer({"problem": str(error), "place": error.place})


def _render(render: Callable[[Messages], Marked], first: int, place: int, messages: Messages) -> Marked:
    import jinja2

    try:
        text, spans = render(messages)
    except ChatError as error:
        raise ChatError(str(error), first + place) from None
    except jinja2.TemplateError as error:
        raise ChatError(f"the chat template refuses the conversation ({first_line(error)})", first + place) from None
    except MemoryError:
        raise ChatError("the chat template needs too much memory", first + place) from None
    except Exception as error:  # noqa: BLE001 - a template can fail in every way that Python can
        raise ChatError(f"the chat template fails ({type(error).__name__}: {first_line(error)})", first + place) from None
    if len(text) > MAX_CHARACTERS:
        raise ChatError(f"the chat template writes more than {MAX_CHARACTERS:,} characters", first + place)
    return text, spans


def compile_template(source: str, tokens: dict[str, str], *, answered: bool = False) -> Callable[[Messages], str]:
    """A function that writes one conversation, up to the next answer or, when ``answered``, with nothing behind it.

    Raises :class:`ChatError` when the source is not a template.
    """
    render = _compiled(source, tokens, answered)
    return lambda messages: render(messages)[0]


def _compiled(source: str, tokens: dict[str, str], answered: bool) -> Callable[[Messages], Marked]:
    """As :func:`compile_template`, with where each part begins and ends that the template marks with ``{% generation %}``.

    The environment is that of ``transformers.utils.chat_template_utils``, so that both write the same.
    """
    import jinja2
    import jinja2.ext
    import jinja2.nodes
    import jinja2.parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(jinja2.ext.Extension):
        """``{% generation %}`` marks answers for training: where each begins and ends in the text is kept in ``spans``."""

        tags = {"generation"}

        def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_keep"), [], [], body).set_lineno(line)

        def _keep(self, caller: Callable[[], str]) -> str:
            text = caller()
            written = sum(map(len, blocks))
            spans.append([written, written + len(text)])
            return text

    blocks: list[str] = []
    spans: list[list[int]] = []
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals.update(raise_exception=_refuse, strftime_now=lambda form: datetime.now().strftime(form))
    environment.globals.update(dict=_PlainDict(), namespace=_plain_namespace())
    try:
        template = environment.from_string(source)
    except jinja2.TemplateError as error:
        raise ChatError(f"the chat template is not valid: {first_line(error)}") from None
    except (RecursionError, MemoryError) as error:  # constants such as 'x' * 10**9 are worked out here
        raise ChatError(f"the chat template is too costly ({type(error).__name__})") from None
    shared = {**tokens, "tools": None, "documents": None, "add_generation_prompt": not answered}

    def render(messages: Messages) -> Marked:
        blocks.clear()
        spans.clear()
        for block in template.generate(messages=messages, **shared):
            blocks.append(block)
        return "".join(blocks), [list(span) for span in spans]

    return render


def _compiled_marking(source: str, tokens: dict[str, str]) -> Callable[[Messages], Marked]:
    """A function that writes one answered conversation, and finds the assistant's answers in it."""
    whole, to_answer = _compiled(source, tokens, True), _compiled(source, tokens, False)
    marks = re.search(r"\{%-?\s*generation\s*-?%\}", source) is not None

    def render(messages: Messages) -> Marked:
        text, spans = whole(messages)
        if marks:
            return text, spans
        for place, message in enumerate(messages):
            if message["role"] == "assistant":
                before = to_answer(messages[:place])[0]
                behind = text if place + 1 == len(messages) else whole(messages[: place + 1])[0]
                if not text.startswith(before) or not text.startswith(behind) or len(behind) < len(before):
                    raise ChatError(
                        f"the chat template writes message {place + 1} otherwise once others follow, so this answer cannot be found in "
                        "the chat; use a template that marks answers with {% generation %}, or chats with one answer"
                    )
                spans.append([len(before), len(behind)])
        return text, spans

    return render


class _PlainDict:
    """``dict`` for templates: not the class itself, whose attributes lead on to others."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


def _plain_namespace() -> type:
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


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
    """jinja2's own would escape HTML characters."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)


COMPILED: dict[str, Callable[[str, dict[str, str]], Callable[[Messages], Marked]]] = {
    "open": lambda source, tokens: _compiled(source, tokens, False),
    "answered": lambda source, tokens: _compiled(source, tokens, True),
    "marked": _compiled_marking,
}
"""How conversations are to be written -> what makes the function that does it."""


if __name__ == "__main__":
    main()
