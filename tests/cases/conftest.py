"""Each small chat model is built once, and each is trained once to answer, for all tests of this folder, which only read them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.inputs.in_process import helpers_in_process, real_helpers

__all__ = ["helpers_in_process", "real_helpers"]


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """From a kind of :data:`tests.cases.chat_models.KINDS` to its folder."""
    from tests.cases.chat_models import save_chat_model

    @cache
    def folder(kind: str) -> Path:
        return save_chat_model(kind, tmp_path_factory.mktemp(kind) / "model")

    return folder


@pytest.fixture(scope="session")
def taught_chat_model(chat_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """From a kind of chat model to a run folder in which it was fine-tuned to answer "Paris" and a number, and to stop."""
    from tests.cases.chat_models import teach_chat_model

    @cache
    def run(kind: str) -> Path:
        return teach_chat_model(chat_model(kind), tmp_path_factory.mktemp(kind) / "run")

    return run


@pytest.fixture(scope="session")
def chat_judge(chat_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model of the kind ``chatml`` that was trained on chats; nobody writes to its folder."""
    from tests.cases.chat_judge import train_chat_judge

    return train_chat_judge(chat_model("chatml"), tmp_path_factory.mktemp("chat_judge"))
