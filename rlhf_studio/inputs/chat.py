"""Chat templates: finding a model's template in its files, and writing conversations with it.

A template is a small program that came with a model. It runs in jinja2's sandbox, set up as transformers does it, and in a helper
process with limited memory and time (``python -m rlhf_studio.inputs.chat``): the sandbox stops code, not cost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple

from rlhf_studio.inputs.error_text import first_line, is_text
from rlhf_studio.inputs.helper import HelperError, answer, ask_helper, read_task
from rlhf_studio.inputs.models.files import ModelFiles
from rlhf_studio.inputs.models.tokenizer_files import added_tokens
from rlhf_studio.inputs.prompts.messages import TOOLS, WEIGHT, Message, content_of, further, parts_of
from rlhf_studio.inputs.template_words import PlainDict, plain_namespace, refuse, to_json

MODULE = "rlhf_studio.inputs.chat"
MEMORY_BYTES = 1024**3
SECONDS = 8.0  # for each pack of conversations
PACK = 500
PART_CHARACTERS = 10_000_000
MAX_CHARACTERS = 400_000
NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
Messages = list[Message]


class Written(NamedTuple):
    """A conversation as a template writes it.

    Attributes:
        text: what the model reads.
        spans: where each answer to learn begins and ends in the text, in characters; empty unless the conversation is ``marked``.
        idle: keys of its messages, beside role and content, that change nothing: without them the text is the same.
        silent: how many answers to learn are empty: they have no content, and the template writes nothing for them. They have no span.
    """

    text: str
    spans: list[list[int]]
    idle: list[str]
    silent: int


Render = Callable[[Messages], tuple[str, list[list[int]]]]
"""Writes a conversation. Gives the text, and where each answer to learn begins and ends in it."""


class ChatError(ValueError):
    """A template cannot write a conversation. ``index``: which one of those given, from 0; None when the template itself is at fault."""

    def __init__(self, message: str, index: int | None = None):
        self.index = index
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
        defaults = [entry.get("template") for entry in source if isinstance(entry, dict) and entry.get("name") == "default"]
        source = defaults[-1] if defaults else None
    if not isinstance(source, str):
        return None
    if not is_text(source):
        raise ChatError(f"the chat template of {files.name} holds half a character (a lone surrogate)")
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
    return [written.text for written in write_chats(chat, conversations, "answered" if answered else "open", tick)]


def write_chats(
    chat: ChatTemplate, conversations: list[Messages], how: Literal["open", "answered", "marked"], tick: Callable[[], None] = lambda: None
) -> list[Written]:
    """Each conversation as the template writes it.

    ``how``: ``open`` ends where the next answer begins. ``answered`` has its answers. ``marked`` also says where each part to learn begins
    and ends. A template may mark these parts itself with ``{% generation %}``. Without marks, a part begins where the chat before the
    answer ends, written ready for an answer; it ends where the chat with that answer ends. An answer of weight 0 is not learned.

    Raises :class:`ChatError`, also when nothing shows where the parts to learn begin and end.
    """
    texts: list[Written] = []
    for part in _parts(conversations):
        try:
            texts += _render_part(chat, part, tick, how)
        except ChatError as error:
            raise ChatError(str(error), None if error.index is None else len(texts) + error.index) from None
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


def _render_part(chat: ChatTemplate, conversations: list[Messages], tick: Callable[[], None], how: str) -> list[Written]:
    task = {"source": chat.source, "tokens": dict(chat.tokens), "conversations": conversations, "how": how}
    texts: list[Written] = []
    answers = ask_helper(MODULE, task, memory_bytes=MEMORY_BYTES + 20 * _size(conversations), seconds=SECONDS, tick=tick)
    try:
        for message in answers:
            if "problem" in message:
                raise ChatError(message["problem"], message["index"])
            texts += (Written(*written) for written in message["texts"])
    except HelperError as error:
        raise ChatError(f"the chat template does not work: {error}") from None
    finally:
        answers.close()
    return texts


def _size(conversations: list[Messages]) -> int:
    """Characters in all messages, with something for each message."""
    return sum(len(text) + 100 for messages in conversations for message in messages for text in parts_of(message))


# --- inside the helper -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer with the texts, in packs, or with what is wrong."""
    task = read_task()
    try:
        render = COMPILED[task["how"]](task["source"], task["tokens"])
        conversations, how = task["conversations"], task["how"]
        for first in range(0, len(conversations), PACK):
            answer({"texts": [_render(render, how, index, chat) for index, chat in enumerate(conversations[first : first + PACK], first)]})
    except ChatError as error:
        answer({"problem": str(error), "index": error.index})


def _render(render: Render, how: str, index: int, messages: Messages) -> Written:
    import jinja2

    try:
        text, spans = render(messages)
    except ChatError as error:
        raise ChatError(str(error), index) from None
    except jinja2.TemplateError as error:
        raise ChatError(f"the chat template refuses the conversation ({first_line(error)})", index) from None
    except MemoryError:
        raise ChatError("the chat template needs too much memory", index) from None
    except Exception as error:  # noqa: BLE001 - a template can fail in every way that Python can
        raise ChatError(f"the chat template fails ({type(error).__name__}: {first_line(error)})", index) from None
    if not is_text(text):
        raise ChatError("the chat template writes half a character (a lone surrogate)", index)
    if len(text) > MAX_CHARACTERS:
        raise ChatError(f"the chat template writes more than {MAX_CHARACTERS:,} characters", index)
    idle = _idle(render, messages, text)
    silent = {number for number in _learned(how, messages) if _is_silent(render, messages, number, text)}
    if silent and how == "marked":
        spans = _spans_without(render, messages, silent)
    return Written(text, spans, idle, len(silent))


def _spans_without(render: Render, messages: Messages, unlearned: Collection[int]) -> list[list[int]]:
    """The spans of the answers that are not ``unlearned``; none if the template's marks do not say which answer is which."""
    try:
        return render([{**message, WEIGHT: 0} if number in unlearned else message for number, message in enumerate(messages)])[1]
    except ChatError:
        return []


def _idle(render: Render, messages: Messages, text: str) -> list[str]:
    """The keys of which the template writes nothing. Most templates know none of them, so all are tried together first."""
    names = further(messages)
    if len(names) > 1 and _without(render, messages, set(names)) == text:
        return names
    return [name for name in names if _without(render, messages, {name}) == text]


def _learned(how: str, messages: Messages) -> Iterable[int]:
    """The numbers of the messages to learn, from 0: all answers of a demonstration, the last answer of a pair's chat."""
    if how == "open":
        return ()
    first = len(messages) - 1 if how == "answered" else 0
    to_learn = (message["role"] == "assistant" and message.get(WEIGHT) != 0 for message in messages)
    return [number for number, learns in enumerate(to_learn) if learns and number >= first]


def _is_silent(render: Render, messages: Messages, number: int, text: str) -> bool:
    return not content_of(messages[number]).strip() and _without(render, messages, further(messages), number) == text


def _without(render: Render, messages: Messages, names: Collection[str], number: int | None = None) -> str | None:
    """The text without these keys of the messages, or of the one at ``number``; None where the template needs them."""
    less = [
        {key: value for key, value in message.items() if key not in names or number not in (None, index)}
        for index, message in enumerate(messages)
    ]
    try:
        return render(less)[0]
    except Exception:  # noqa: BLE001 - a template can fail in every way that Python can; with the keys it did not
        return None


def compile_template(source: str, tokens: dict[str, str], *, answered: bool = False) -> Callable[[Messages], str]:
    """A function that writes one conversation: up to where the next answer begins or, when ``answered``, as it is.

    Raises :class:`ChatError` when the source is not a template.
    """
    render = _compiled(source, tokens, answered)
    return lambda messages: render(messages)[0]


def _compiled(source: str, tokens: dict[str, str], answered: bool) -> Render:
    """As :func:`compile_template`. It also gives where each part begins and ends that the template marks with ``{% generation %}``.

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
    environment.filters["tojson"] = to_json
    environment.globals.update(raise_exception=refuse, strftime_now=lambda form: datetime.now().strftime(form))
    environment.globals.update(dict=PlainDict(), namespace=plain_namespace())
    try:
        template = environment.from_string(source)
    except jinja2.TemplateError as error:
        raise ChatError(f"the chat template is not valid: {first_line(error)}") from None
    except (RecursionError, MemoryError) as error:  # constants such as 'x' * 10**9 are worked out here
        raise ChatError(f"the chat template is too costly ({type(error).__name__})") from None
    shared = {**tokens, "documents": None, "add_generation_prompt": not answered}

    def write(messages: Messages) -> tuple[str, list[list[int]]]:
        blocks.clear()
        spans.clear()
        tools = next((message[TOOLS] for message in messages if TOOLS in message), None)
        own = [{key: value for key, value in message.items() if key not in (TOOLS, WEIGHT)} for message in messages]
        for block in template.generate(messages=own, tools=tools, **shared):
            blocks.append(block)
        return "".join(blocks), [list(span) for span in spans]

    return partial(_render_calls, write)


def _render_calls(write: Render, messages: Messages) -> tuple[str, list[list[int]]]:
    """What ``write`` gives. The content of a call is None, and some templates need that. Where a template fails at it, or writes the word
    None, the content is an empty text instead.
    """
    if all(message["content"] is not None for message in messages):
        return write(messages)
    empty = [{**message, "content": content_of(message)} for message in messages]
    try:
        written = write(messages)
    except Exception:  # noqa: BLE001 - a template can fail in every way that Python can; the empty text shows whether None is why
        return write(empty)
    if "None" not in written[0]:
        return written
    other = write(empty)
    return other if written[0].replace("None", "") == other[0].replace("None", "") else written


def _compiled_marking(source: str, tokens: dict[str, str]) -> Render:
    """A function that writes one answered conversation, and finds the assistant's answers in it."""
    answered, unanswered = _compiled(source, tokens, True), _compiled(source, tokens, False)
    marks = re.search(r"\{%-?\s*generation\s*-?%\}", source) is not None

    def render(messages: Messages) -> tuple[str, list[list[int]]]:
        text, spans = answered(messages)
        answers = [message for message in messages if message["role"] == "assistant"]
        if marks:
            unlearned = [message.get(WEIGHT) == 0 for message in answers]
            if any(unlearned) and len(unlearned) != len(spans):
                raise ChatError(f"the chat template marks {len(spans)} answers of {len(answers)}, so which has the weight 0 cannot be told")
            return text, [span for span, left_out in zip(spans, unlearned, strict=True) if not left_out] if any(unlearned) else spans
        for number, message in enumerate(messages):
            if message["role"] == "assistant" and message.get(WEIGHT) != 0:
                before = unanswered(messages[:number])[0]
                behind = text if number + 1 == len(messages) else answered(messages[: number + 1])[0]
                if not text.startswith(before) or not text.startswith(behind) or len(behind) < len(before):
                    raise ChatError(
                        f"the chat template writes message {number + 1} otherwise once others follow, so this answer cannot be found in "
                        "the chat; use a template that marks answers with {% generation %}, or chats with one answer"
                    )
                spans.append([len(before), len(behind)])
        return text, spans

    return render


COMPILED: dict[str, Callable[[str, dict[str, str]], Render]] = {
    "open": lambda source, tokens: _compiled(source, tokens, False),
    "answered": lambda source, tokens: _compiled(source, tokens, True),
    "marked": _compiled_marking,
}
"""How conversations are to be written -> what makes the function that does it."""


if __name__ == "__main__":
    main()
