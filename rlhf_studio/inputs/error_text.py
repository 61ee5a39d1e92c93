"""What an exception of a library says, short enough to stand inside a sentence of ours."""

from __future__ import annotations


def first_line(error: BaseException, longest: int = 200) -> str:
    """The first line of an exception's message, at most ``longest`` characters; the name of its class when the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:longest]


def is_text(text: str) -> bool:
    """Whether this is valid Unicode, as tokenizers need it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
