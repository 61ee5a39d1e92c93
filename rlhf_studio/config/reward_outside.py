"""Reward components that ask something outside the program. What they may ask is said when the program is started, never here."""

from __future__ import annotations

from typing import Literal

from rlhf_studio.config.base import setting
from rlhf_studio.config.reward_base import Component


class PythonReward(Component):
    """A function of your own, score(prompts, responses, **extra), in a process of its own. Start with --allow-custom-rewards FILE."""

    kind: Literal["python"] = "python"
    file: str = setting(
        "", "Python file", "The file that holds the function. The program must be started with --allow-custom-rewards and this file.",
        level="basic", max_length=4096,
    )  # fmt: skip
    function: str = setting(
        "score", "Function", "Its name. It is called with all prompts and responses of a batch and gives a list with one number each.",
        level="basic", min_length=1, max_length=200, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        allowed="the name of a function: letters, digits and _, not beginning with a digit",
    )  # fmt: skip
    timeout: float = setting(
        60.0, "Time limit", "Longest time for one batch; then the process is ended and the run stops with a message.", unit="seconds",
        level="basic", gt=0, le=86_400,
    )  # fmt: skip


class HttpReward(Component):
    """A scoring server that takes prompts and responses and answers with scores. Start with --reward-url NAME=URL."""

    kind: Literal["http"] = "http"
    server: str = setting(
        "", "Server name", "The NAME of a --reward-url NAME=URL that the program was started with; settings never hold the address.",
        level="basic", max_length=100,
    )  # fmt: skip
    timeout: float = setting(30.0, "Time limit", "Longest time for one request.", unit="seconds", level="basic", gt=0, le=3600)
    retries: int = setting(
        3,
        "Retries",
        "How often a request is repeated when the server is out of reach, overloaded or failing (429, 5xx).",
        ge=0,
        le=20,
    )
    batch_size: int = setting(256, "Batch size", "Most responses in one request.", unit="texts", ge=1, le=4096)
