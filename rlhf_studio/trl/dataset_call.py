"""A call of ``load_dataset``: the source of the prompts, with a line for every argument that has no counterpart."""

from __future__ import annotations

import re
from typing import Any

from rlhf_studio.config.wording import shortened
from rlhf_studio.trl.arguments import Arguments, NotLiteral

READERS = ("json", "csv", "parquet", "text", "pandas", "arrow")
"""Values of ``path`` that name a file format; the files themselves are then in ``data_files``."""
POSITIONS = ("path", "name", "data_dir", "data_files", "split")
SETTINGS = {"name": "data.subset", "split": "data.split", "revision": "data.revision"}
NO_EFFECT = ("cache_dir", "num_proc", "keep_in_memory", "download_mode", "verification_mode", "token", "use_auth_token", "streaming")


def read_load_dataset(arguments: Arguments, given: dict[str, Any]) -> None:
    """Put into ``arguments`` what a call of ``load_dataset`` says; the first call with a literal source counts.

    ``given`` has its arguments by name, :class:`NotLiteral` where a value is computed.
    """
    path, files = given.get("path"), given.get("data_files")
    call = f"load_dataset({shortened(path.text if isinstance(path, NotLiteral) else path)})"
    if not isinstance(path, str):
        if "dataset_name" not in arguments.values and not isinstance(path, NotLiteral):
            arguments.lines.append(f"data.prompts: {call} names no data set")
        return
    if "dataset_name" in arguments.values:
        if arguments.values["dataset_name"] != path:
            arguments.lines.append(f"{call}: {arguments.values['dataset_name']} was taken as the prompts")
        return
    rest = {name: value for name, value in given.items() if name not in ("path", "data_files", *NO_EFFECT)}
    if path in READERS or files is not None:
        source, split = _the_file(arguments, files, str(given.get("split", "train")), call)
        if source is None:
            return
        if split:
            rest.pop("split", None)  # it chose the file; a file has no splits
        arguments.values["dataset_name"] = source
    else:
        arguments.values["dataset_name"] = path
    for name, value in rest.items():
        _put(arguments, name, value, call)


def _put(arguments: Arguments, name: str, value: Any, call: str) -> None:
    """One argument besides the source."""
    if value is None:
        return
    if isinstance(value, NotLiteral):
        if "." not in value.text:  # else an option of the script, which is read by its own name
            arguments.lines.append(f"{call}: {name} {value.text!r} is not a literal; write its value")
    elif name in SETTINGS and isinstance(value, str) and re.fullmatch(r"[^\[\]+]*", value):
        arguments.dataset[SETTINGS[name]] = value
    elif name == "split" and isinstance(value, str):
        arguments.dataset["data.split"] = re.split(r"[\[+]", value)[0] or "train"
        arguments.lines.append(f"data.split: {shortened(value)} was a part of the rows; data.max_prompts takes the first so many")
    else:
        arguments.lines.append(f"{call}: {name} {shortened(value)} was left out")


def _the_file(arguments: Arguments, files: Any, split: str, call: str) -> tuple[str | None, bool]:
    """The file or folder that holds the split, None when there is not exactly one; and whether that file is the whole split.

    What else the call names becomes a line.
    """
    chosen = files
    if isinstance(files, dict):
        chosen = files.get(re.split(r"[\[+]", split)[0])
        others = [f"{key} {shortened(value)}" for key, value in files.items() if value is not chosen]
        if others:
            arguments.lines.append(f"{call}: data_files also names {', '.join(others)}; held-out prompts stand in data.eval")
    several = isinstance(chosen, list) and len(chosen) != 1
    if isinstance(chosen, list) and not several:
        chosen = chosen[0]
    if several or not isinstance(chosen, str):
        written = chosen.text if isinstance(chosen, NotLiteral) else shortened(chosen)
        arguments.lines.append(f"data.prompts: {call} read {written}; name one file, or a folder with those files")
        return None, False
    return chosen, "[" not in split and "+" not in split
