"""What a tokenizer's files tell: that there is one, how many tokens it has, and its special tokens."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from rlhf_studio.inputs.models.files import ModelError, ModelFiles, read_json

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model")
CLASSES_FOR_ANY_MODEL = ("PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend")


def has_tokenizer(files: ModelFiles) -> bool:
    """Whether a tokenizer is among the files."""
    return any(file_name in files.sizes for file_name in TOKENIZER_FILES)


def check_vocabulary(name: str, tokenizer: Path | None, vocab_size: int | None) -> None:
    """Raises :class:`ModelError` for a damaged ``tokenizer.json``, or one with more tokens than the model's ``vocab_size``."""
    if tokenizer is None:
        return
    stat = tokenizer.stat()
    read = _read_tokenizer(tokenizer, stat.st_mtime_ns, stat.st_size)
    if read is None:
        raise ModelError(f"tokenizer.json of {name} cannot be read; save the tokenizer again")
    tokens, _ = read
    if vocab_size is not None and tokens > vocab_size:
        raise ModelError(
            f"the tokenizer of {name} has {tokens:,} tokens, but the model knows only {vocab_size:,}; they do not belong together"
        )


@lru_cache(maxsize=32)
def _read_tokenizer(path: Path, modified: int, size: int) -> tuple[int, dict[str, int]] | None:
    """(Highest token id + 1, :func:`added_tokens`), or None when the file is not a tokenizer.

    ``modified`` and ``size`` make the cache notice a new file.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception:  # noqa: BLE001 - the library raises bare Exception for every kind of bad file
        return None
    added = {token.content: number for number, token in tokenizer.get_added_tokens_decoder().items()}
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1, added


def added_tokens(tokenizer: Path) -> dict[str, int]:
    """The texts of all tokens that a ``tokenizer.json`` keeps whole -> their ids; none of a file that cannot be read."""
    stat = tokenizer.stat()
    read = _read_tokenizer(tokenizer, stat.st_mtime_ns, stat.st_size)
    return {} if read is None else read[1]


def read_end(files: ModelFiles) -> str:
    """The text of the end token, as the tokenizer's files name it; empty when they do not."""
    return _special_tokens(files)[1]


def longest_of_tokenizer(files: ModelFiles) -> int | None:
    """The most tokens of a text by the tokenizer's own settings; None where they name no limit."""
    named = read_json(files, "tokenizer_config.json").get("model_max_length")
    return int(named) if isinstance(named, int | float) and named >= 1 else None


def pad_and_end(files: ModelFiles) -> dict[str, Any]:
    """The fields ``has_pad``, ``has_end`` and ``pad_equals_eos`` of :class:`rlhf_studio.inputs.models.facts.ModelFacts`."""
    pad, end = _special_tokens(files)
    named = "tokenizer_config.json" in files.sizes
    return {
        "has_pad": bool(pad) if named else None,
        "has_end": True if end else None if not named or _may_have_end(files) else False,
        "pad_equals_eos": bool(pad) and pad == end,
    }


def _may_have_end(files: ModelFiles) -> bool:
    """Whether a tokenizer whose files name no end token may get one from its class: not if they say null or name a general class."""
    settings = read_json(files, "tokenizer_config.json")
    return "eos_token" not in settings and settings.get("tokenizer_class") not in CLASSES_FOR_ANY_MODEL


def _special_tokens(files: ModelFiles) -> tuple[str, str]:
    """(pad, end) as tokenizer_config.json names them, else special_tokens_map.json; empty where neither does."""
    sources = (read_json(files, "tokenizer_config.json"), read_json(files, "special_tokens_map.json"))

    def text(key: str) -> str:
        values = (source.get(key) for source in sources)
        texts = (value.get("content") if isinstance(value, dict) else value for value in values)
        return next((content for content in texts if isinstance(content, str) and content), "")

    return text("pad_token"), text("eos_token")
