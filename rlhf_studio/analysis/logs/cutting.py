"""Texts without tokens are cut by the tokenizer that a person names, else at words; ids without texts get theirs from it too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlhf_studio.analysis.logs.shape import LogFields
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.language import S_
from rlhf_studio.token_texts import GrowingText, words_of
from rlhf_studio.visible import visible

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE = "tokenizer.json"


class Words:
    """Cuts at words, each with the blanks before it; of ids it knows nothing."""

    words = True
    note = " ".join(
        (
            S_("The log does not say what its tokens are, so texts are cut at words, and where it gives no lengths they count words."),
            S_("For tokens, name the policy's tokenizer when you open it."),
        )
    )
    note_of_ids = " ".join(
        (
            S_("The log has the ids of tokens and no texts, so the ids stand for them."),
            S_("For texts, name the policy's tokenizer when you open it."),
        )
    )

    def cut(self, text: str) -> LogFields:
        """The words of a text; together they are the text."""
        return {"response_tokens": words_of(text)}

    def pieces(self, ids: list[int]) -> list[str]:
        """Ids in brackets in the place of texts."""
        return [f"[{token}]" for token in ids]


class Tokens:
    """Cuts as a tokenizer does.

    Args:
        model: a folder with a ``tokenizer.json``, that file, or the name of a model on the hub.

    Raises ConfigError where there is no such tokenizer.
    """

    words = False

    def __init__(self, model: str):
        self._tokenizer = _tokenizer(model)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        name = visible(Path(model).name, lines=False)
        self.note = S_(f"Texts are cut by the tokenizer of {name}, which was named when the log was opened.")
        self.note_of_ids = S_(f"Texts of tokens are those of the tokenizer of {name}, which was named when the log was opened.")

    def cut(self, text: str) -> LogFields:
        """The tokens of a text and their ids. A character that several tokens share is shown with the first of them."""
        coded = self._tokenizer.encode(text, add_special_tokens=False)
        ends = [end for _, end in coded.offsets]
        pieces = [text[before:end] for before, end in zip([0, *ends], ends, strict=False)]
        if pieces:
            pieces[-1] += text[ends[-1] :]
        return {"response_tokens": pieces, "response_ids": coded.ids}

    def pieces(self, ids: list[int]) -> list[str]:
        """The text that each token adds."""
        text = GrowingText(self._decode)
        return [text.add(token) for token in ids]

    def _decode(self, ids: tuple[int, ...]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)


def cutter_of(model: str) -> Words | Tokens:
    """What cuts: the tokenizer of ``model``, or words where that is empty. Raises ConfigError."""
    return Tokens(model) if model else Words()


def _tokenizer(model: str) -> Tokenizer:
    from tokenizers import Tokenizer  # imported for those who name one

    file = _file_of(model)
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises no kind of its own
        raise _unfit(model, f"its {FILE} cannot be read ({str(error)[:200]})") from error


def _file_of(model: str) -> Path:
    path = Path(model).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        if not (path / FILE).is_file():
            raise _unfit(model, f"the folder has no {FILE}; save a fast tokenizer there with transformers' save_pretrained")
        return path / FILE
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(model, FILE))
    except HFValidationError as error:
        raise _unfit(model, "it is neither a folder nor the name of a model on the hub") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise _unfit(model, f"it is no folder here, and the hub gave no {FILE} of that name ({type(error).__name__})") from error


def _unfit(model: str, why: str) -> ConfigError:
    return ConfigError([Problem("tokenizer", f"{visible(model, lines=False)[:200]} has no usable tokenizer: {why}")])
