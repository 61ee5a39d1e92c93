"""Pushing an exported folder to the Hugging Face hub. The token comes from the environment; it is neither stored nor printed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from rlhf_studio.jobs.export.targets import refuse

TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)


def token_of(environment: Mapping[str, str]) -> str:
    """The token for the hub. Raises ConfigError without one."""
    for name in TOKEN_VARIABLES:
        if token := environment.get(name, "").strip():
            return token
    raise refuse("pushing to the hub needs a token that may write: set the environment variable HF_TOKEN")


def check_name(name: str) -> None:
    """Raises ConfigError for what cannot be the name of a model on the hub."""
    if not _NAME.fullmatch(name) or ".." in name or "--" in name:
        raise refuse(f"{name[:100]!r} cannot be a model on the hub; write NAME or OWNER/NAME, with letters, digits, dots, - and _")


def push(folder: Path, name: str, *, public: bool = False, environment: Mapping[str, str] = os.environ) -> str:
    """Upload a folder as a model; returns its address. A new one is private unless ``public``.

    Raises ConfigError: no token, a name that cannot be, a public model of that name where a private one was meant, or what the hub says.
    """
    check_name(name)
    token = token_of(environment)
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HTTPError  # the second is its HTTP library's, whichever that is

    api = HfApi(endpoint=environment.get("HF_ENDPOINT") or None, token=token)
    try:
        made = api.create_repo(name, repo_type="model", private=not public, exist_ok=True)
        if not public and not api.model_info(made.repo_id).private:
            raise refuse(f"{made.repo_id} exists already and is public; choose another name, or say --public")
        api.upload_folder(folder_path=folder, repo_id=made.repo_id, repo_type="model", commit_message="Upload from RLHF Studio")
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status in (401, 403):
            raise refuse(f"the hub refused to write {name} (HTTP {status}): check that the token may write there") from None
        raise refuse(f"the hub answered with HTTP {status}: {_first_line(error, token)}") from None
    except (HTTPError, OSError, ValueError) as error:
        raise refuse(f"the hub cannot be reached or refused: {_first_line(error, token)}") from None
    return str(made)


def _first_line(error: Exception, token: str) -> str:
    """The first line of an error, without the token whatever happens."""
    lines = str(error).replace(token, "...").strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
