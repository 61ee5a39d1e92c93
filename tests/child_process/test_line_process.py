"""A child that answers in JSON lines: time limits, sizes, ends of all kinds, and nothing left behind."""

import gc
import os
import sys
from pathlib import Path

import psutil
import pytest

from rlhf_studio.child_process.line_process import LineEnded, LineInvalid, LineProcess, LineTimeout
from tests.waiting import gone, wait_until

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
FOREVER = "import threading; threading.Event().wait()"


def python(source: str, **keywords) -> LineProcess:
    return LineProcess([sys.executable, "-c", source], **keywords)


def test_asking():
    process = python(ECHO)
    for message in ({"a": [1, 2.5, None]}, {"text": "\ud800\n\u2028\x00😀"}, {"big": "x" * 3_000_000}):
        assert process.ask(message, 30, 4_000_000) == message
    process.kill()


def test_several_lines_at_once_are_kept_apart():
    process = python("print('{\"a\": 1}\\n{\"a\": 2}\\n{\"a\"', end='', flush=True); print(': 3}', flush=True); " + FOREVER)
    assert [process.receive(30, 1000)["a"] for _ in range(3)] == [1, 2, 3]
    process.kill()


@pytest.mark.parametrize("line", ["", "{", "[" * 900, "\\x80"])
def test_answers_that_are_no_objects(line: str):
    process = python(f"import sys; sys.stdout.buffer.write(b'{line}\\n'); sys.stdout.flush(); {FOREVER}")
    with pytest.raises(LineInvalid, match="not a JSON object"):
        process.receive(30, 1000)
    process.kill()


def test_an_answer_without_end():
    process = python("while True: print('x' * 1000, end='')")
    with pytest.raises(LineInvalid, match="longer than 5000 bytes"):
        process.receive(30, 5000)
    process.kill()


def test_silence_and_deafness():
    process = python(FOREVER)
    with pytest.raises(LineTimeout):
        process.receive(0.05, 1000)
    with pytest.raises(LineTimeout):
        process.send({"big": "x" * 10_000_000}, 0.05)  # it reads nothing, and a pipe holds little
    process.kill()


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [("pass", 0, "exit code 0"), ("raise SystemExit(5)", 5, "exit code 5"), ("import os; os.kill(os.getpid(), 9)", -9, "signal 9")],
)
def test_a_child_that_ends(source: str, code: int, words: str):
    process = python(source)
    with pytest.raises(LineEnded, match=words) as caught:
        process.receive(30, 1000)
    assert caught.value.code == code and not psutil.pid_exists(process.pid)
    for action in (lambda: process.receive(1, 1000), lambda: process.send({}, 1)):
        with pytest.raises(LineEnded):
            action()


def test_a_child_that_closes_its_input():
    process = python("import os; os.close(0); print('{}', flush=True)")
    process.receive(30, 1000)
    with pytest.raises(LineEnded):
        process.send({"big": "x" * 10_000_000}, 30)


def test_killing_takes_the_whole_group_and_happens_once():
    process = python(
        "import subprocess, sys, json\n"
        f"child = subprocess.Popen([sys.executable, '-c', {FOREVER!r}])\n"
        "print(json.dumps({'pid': child.pid}), flush=True)\nchild.wait()"
    )
    grandchild = process.receive(30, 1000)["pid"]
    assert os.getpgid(grandchild) == process.pid
    process.kill()
    process.kill()
    assert not psutil.pid_exists(process.pid)
    wait_until(lambda: gone(grandchild))


def test_it_goes_with_its_owner():
    process = python(FOREVER)
    pid = process.pid
    del process
    gc.collect()
    assert not psutil.pid_exists(pid)


def test_environment_and_errors(tmp_path: Path):
    with (tmp_path / "errors").open("wb") as errors:
        source = "import os, sys, json; print(json.dumps(dict(os.environ)), flush=True); print('trace', file=sys.stderr)"
        process = python(source, environment={"ONLY": "this"}, errors=errors.fileno())
        assert process.receive(30, 10_000)["ONLY"] == "this"
        with pytest.raises(LineEnded):
            process.receive(30, 1000)
    assert (tmp_path / "errors").read_text() == "trace\n"
    with pytest.raises(OSError):
        LineProcess(["/no/such/program"])
