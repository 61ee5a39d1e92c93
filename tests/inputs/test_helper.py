"""Helper processes: whatever they do, this process goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.inputs.helper import HelperError, ask_helper


@pytest.fixture
def write_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a module that a helper process can run: ``body`` sees its task as ``task``."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write(body: str) -> str:
        (tmp_path / "some_helper.py").write_text(f"from rlhf_studio.inputs.helper import answer, read_task\ntask = read_task()\n{body}\n")
        return "some_helper"

    return write


def ask(module: str, task: dict[str, Any] | None = None, **options: Any) -> list[dict[str, Any]]:
    return list(ask_helper(module, task or {}, **{"memory_bytes": 2**30, "seconds": 60, **options}))


def test_the_task_goes_in_and_answers_come_out(write_helper: Any) -> None:
    big = {"text": "é\n" * 200_000}
    module = write_helper("answer({'size': len(task['text'])})\nfor number in range(3): answer({'number': number, 'text': task['text']})")
    answers = ask(module, big)
    assert answers[0] == {"size": 400_000}
    assert [answer["number"] for answer in answers[1:]] == [0, 1, 2] and answers[3]["text"] == big["text"]


def test_the_memory_of_a_helper_is_limited(write_helper: Any) -> None:
    with pytest.raises(HelperError, match="it needed too much memory"):
        ask(write_helper("x = bytes(2**31)"))


def test_a_helper_sees_no_secrets(write_helper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HF_PAT", "HUGGINGFACE_KEY", "HF_JWT", "AWS_SECRET_ACCESS_KEY", "RLHF_STUDIO_TOKEN", "MY_PASSWORD"):
        monkeypatch.setenv(name, "canary")
    monkeypatch.setenv("https_proxy", "http://proxy.example")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    module = write_helper("import os\nanswer({name: value for name, value in os.environ.items()})")
    (environment,) = ask(module)
    assert "canary" not in environment.values() and "https_proxy" not in environment and environment["LC_ALL"] == "C.UTF-8"
    (environment,) = ask(module, network=True)
    assert [name for name, value in environment.items() if value == "canary"] == ["HF_TOKEN"]
    assert environment["https_proxy"] == "http://proxy.example"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('oh')", r"it ended with code 1 \(ValueError: oh\)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "too much memory"),
    ],
)
def test_a_helper_that_ends_badly(body: str, message: str, write_helper: Any) -> None:
    with pytest.raises(HelperError, match=message):
        ask(write_helper(body))


def test_a_helper_ends_with_the_process_that_asked_it() -> None:
    """Also when that one was killed and could end nobody: its end of the pipe closes."""
    body = "from rlhf_studio.inputs.helper import *; answer(read_task()); import threading; threading.Event().wait()"
    process = subprocess.Popen([sys.executable, "-c", body], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin and process.stdout
    process.stdin.write(b'{"a": 1}\n')
    process.stdin.flush()
    assert process.stdout.readline() == b'{"a": 1}\n'
    process.stdin.close()
    assert process.wait(60) == 1
    process.stdout.close()


def test_helpers_and_preview_start_without_the_heavy_libraries() -> None:
    heavy = ("torch", "transformers", "datasets", "pyarrow", "gradio", "pandas")
    code = "import sys, rlhf_studio.inputs.chat, rlhf_studio.inputs.prompts.sources.tables, rlhf_studio.inputs.prompts.preview; "
    code += f"print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
