"""A person's own reward function: what it is given, every way in which it can go wrong, and that it never outlives its caller."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from rlhf_studio.config import LengthReward, Permissions, PythonReward, RewardConfig, permissions_from_flags
from rlhf_studio.config.io import ConfigError
from rlhf_studio.engine.compute.device import Compute
from rlhf_studio.engine.rewards.errors import ComponentError
from rlhf_studio.engine.rewards.kinds import python_function
from rlhf_studio.engine.rewards.kinds.python_function import CHILD, PythonFunction, begin_processes
from rlhf_studio.engine.rewards.scorer import Episodes, RewardError, build_scorer
from tests.waiting import gone, wait_until

CPU = Compute(torch.device("cpu"), torch.float32)
EPISODES = Episodes(["why", "how"], ["a b", "c"], [True, False], [2, 1])


def function_of(tmp_path: Path, source: str, **settings: Any) -> PythonFunction:
    file = tmp_path / "rewards.py"
    file.write_text(source, encoding="utf-8")
    return PythonFunction(PythonReward(file=str(file), **settings), permissions_from_flags([str(file)], []), "reward.components.0")


def scores(function: PythonFunction, episodes: Episodes = EPISODES) -> list[float]:
    return function(episodes).scores.tolist()


# --- what it is given ------------------------------------------------------------------------------------------------------------


def test_prompts_responses_and_what_else_is_known(tmp_path: Path) -> None:
    function = function_of(
        tmp_path,
        "def score(prompts, responses, **extra):\n"
        "    assert prompts == ['why', 'how'] and responses == ['a b', 'c'], (prompts, responses)\n"
        "    assert extra == {'stopped': [True, False], 'lengths': [2, 1]}, extra\n"
        "    return [len(response) for response in responses]\n",
    )
    assert scores(function) == [3.0, 1.0]


def test_a_process_that_was_begun_early_is_the_one_that_scores(tmp_path: Path) -> None:
    """It reads its file while models load; a file that is not allowed is not read."""
    file = tmp_path / "rewards.py"
    file.write_text("import os\ndef score(prompts, responses):\n    return [os.getpid()] * len(responses)\n")
    settings = PythonReward(file=str(file))
    allowed = permissions_from_flags([str(file)], [])
    assert begin_processes([settings], Permissions()) == {}
    begun = begin_processes([LengthReward(), settings], allowed)
    (number,) = begun
    scorer = build_scorer(RewardConfig(components=[LengthReward(weight=0.0), settings]), CPU, lambda text, fraction: None, allowed, begun)
    assert number == 1 and scorer(EPISODES).parts["python"].tolist() == [begun[1].pid] * 2


def test_references_when_there_are_some_and_only_what_it_takes(tmp_path: Path) -> None:
    function = function_of(
        tmp_path,
        "def mine(prompts, responses, references=None):\n    return [float(item == 'x') for item in references]\n",
        function="mine",
    )
    assert scores(function, Episodes(["p"] * 2, ["r"] * 2, [True] * 2, [1] * 2, ["x", "y"])) == [1.0, 0.0]
    assert scores(function_of(tmp_path, "def score(prompts, responses): return (1, 2)")) == [1.0, 2.0]
    chats = [[{"role": "user", "content": "Hi"}]] * 2
    function = function_of(tmp_path, "def score(p, r, messages): return [len(chat[0]['content']) for chat in messages]")
    assert scores(function, Episodes(["p"] * 2, ["r"] * 2, [True] * 2, [1] * 2, None, chats)) == [2.0, 2.0]


def test_arrays_are_numbers_and_prints_are_no_answers(tmp_path: Path) -> None:
    function = function_of(
        tmp_path,
        "import numpy\nprint('[1, 2]')\n"
        "def score(prompts, responses, **extra):\n    print('{\"scores\": [9, 9]}', flush=True)\n    return numpy.array([0.5, 1.5])\n",
    )
    assert scores(function) == [0.5, 1.5]
    assert scores(function_of(tmp_path, "import numpy\ndef score(p, r): return [numpy.float32(0.5), numpy.int64(2)]")) == [0.5, 2.0]


def test_modules_beside_the_file_are_found_and_state_is_kept(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text("calls = []\n")  # the package has a module of that name too
    function = function_of(tmp_path, "import rules\ndef score(p, r):\n    rules.calls.append(1)\n    return [len(rules.calls)] * len(r)\n")
    assert scores(function) == [1.0, 1.0] and scores(function) == [2.0, 2.0]


def test_a_large_batch_fills_no_pipe(tmp_path: Path) -> None:
    function = function_of(tmp_path, "def score(p, r): return [len(text) / 3 for text in r]")
    texts = ["x" * 5000] * 400  # two megabytes
    assert scores(function, Episodes(texts, texts, [True] * 400, [1] * 400)) == pytest.approx([5000 / 3] * 400)


def test_it_sees_no_variable_that_it_does_not_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RLHF_STUDIO_REWARD_PERMISSIONS", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "MY_OWN_SETTING"):
        monkeypatch.setenv(name, "canary")
    source = "import os\ndef score(p, r): return [str(os.environ).count('canary'), int(os.environ['HF_HUB_DISABLE_IMPLICIT_TOKEN'])]"
    assert scores(function_of(tmp_path, source)) == [0, 1]


PIECES = [["Two", " steps", ".\n", "Done", ".", "\n"], ["One", " line"], ["a", "\n", "\n", "b"]]
"""Two ended lines; one line; three lines, of which the second is empty."""
STEPS = Episodes(
    ["p"] * 3, ["".join(row) for row in PIECES], [False] * 3, [6, 2, 4], pieces=PIECES, logprobs=[[-1.0] * 6, [-2.0] * 2, [-3.0] * 4]
)


def test_steps_inside_a_response_earn_at_their_ends(tmp_path: Path) -> None:
    """One number for each token, for each line (ended or not), or for the whole response; what is left is the last token's."""
    function = function_of(
        tmp_path,
        "def score(prompts, responses, tokens, logprobs):\n"
        "    assert tokens[1] == ['One', ' line'] and logprobs[1] == [-2.0, -2.0]\n"
        "    return [[0.5, 2.0], 3, [1, 2, 4]]\n",
    )
    answer = function(STEPS)
    assert answer.scores.tolist() == [2.5, 3.0, 7.0] and answer.early is not None
    assert answer.early.tolist() == [[0, 0, 0.5, 0, 0, 0], [0] * 6, [0, 1, 2, 0, 0, 0]]
    ends = Episodes(["p"] * 2, ["a\nb\n", "x\n\n"], [True] * 2, [5, 3], pieces=[["a", "\n", "b", "\n", "<eos>"], ["x", "\n\n", "<eos>"]])
    by_lines = function_of(tmp_path, "def score(p, r):\n    return [[1, 2], [1, 2, 4]]\n")(ends)  # the second has as many tokens as lines
    assert by_lines.early is not None and by_lines.early.tolist() == [[0, 1, 0, 2, 0], [0, 3, 0, 0, 0]]
    each = function_of(tmp_path, "def score(p, r):\n    return [[0, 1, 2, 3, 4, 5], [1, 2], [1, 1, 1, 1]]\n")(STEPS)
    assert each.early is not None and each.early.tolist() == [[0, 1, 2, 3, 4, 0], [1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]]
    with pytest.raises(ComponentError, match="it gave 5 scores for a response of 6 tokens and 2 lines") as caught:
        function_of(tmp_path, "def score(p, r):\n    return [[1] * 5, 1, 1]\n")(STEPS)
    assert caught.value.row == 0


def test_steps_that_are_too_large_are_told_with_the_component(tmp_path: Path) -> None:
    """Their sum is finite; what they are in float32 is not."""
    (tmp_path / "r.py").write_text("def score(p, r):\n    return [[1e39, -1e39, 0.0]]\n")
    allowed = permissions_from_flags([str(tmp_path / "r.py")], [])
    scorer = build_scorer(RewardConfig(components=[PythonReward(file=str(tmp_path / "r.py"))]), CPU, lambda text, fraction: None, allowed)
    with pytest.raises(RewardError, match="component python gave steps of a response that are too large for the prompt"):
        scorer(Episodes(["p"], ["abc"], [True], [3], pieces=[["a", "b", "c"]]))


@pytest.mark.parametrize(
    ("settings", "early"),
    [
        ({}, [0.5, 0.0]),
        ({"scaling": "scale"}, [0.5 / 2**0.5, 0.0]),  # scores 3 and 1 have the standard deviation sqrt(2)
        ({"missing_eos_penalty": 2.0, "missing_eos_mode": "replace"}, [0.5, 0.0]),
    ],
)
def test_what_steps_earn_is_on_the_scale_of_the_scores(tmp_path: Path, settings: dict[str, Any], early: list[float]) -> None:
    (tmp_path / "r.py").write_text("def score(p, r):\n    return [[1, 5], [0, 2]]\n")
    component = PythonReward(file=str(tmp_path / "r.py"), weight=0.5)
    allowed = permissions_from_flags([str(tmp_path / "r.py")], [])
    scorer = build_scorer(RewardConfig(components=[component], **settings), CPU, lambda text, fraction: None, allowed)
    ended = [True, not settings.get("missing_eos_penalty")]
    scores = scorer(Episodes(["p", "p"], ["ab", "ab"], ended, [2, 2], pieces=[["a", "b"]] * 2))
    assert scorer.reads_tokens and scores.early is not None
    assert scores.early[:, 0].tolist() == pytest.approx(early) and scores.early[:, 1].tolist() == [0.0, 0.0]


# --- what can go wrong -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "cause", "row"),
    [
        ("raise ValueError('too sad')", "it raised ValueError: too sad (line 2)", None),
        ("return [1.0, float('nan')]", "it gave nan", 1),
        ("return [10 ** 400, 1]", "it gave a number that is too large", 0),
        ("return None", "it gave None and not a list of numbers", None),
        ("return [None, 1]", "it gave None, which is not a number", 0),
        ("return [1, 'good']", "it gave 'good', which is not a number", 1),
        ("return [True, 1]", "it gave True, which is not a number", 0),
        ("return [1.0]", "it gave 1 scores for 2 responses", None),
        ("return [type('Odd', (), {'__repr__': lambda self: 1 / 0})(), 1]", "it gave a Odd, which is not a number", 0),
        ("return ['x' * 1000, 1]", "xxx..., which is not a number", 0),
        ("import os; os._exit(7)", "its process is gone: it ended with exit code 7", None),
    ],
)
def test_a_function_that_misbehaves(tmp_path: Path, body: str, cause: str, row: int | None) -> None:
    function = function_of(tmp_path, f"def score(prompts, responses, **extra):\n    {body}\n")
    with pytest.raises(ComponentError) as caught:
        function(EPISODES)
    assert cause in str(caught.value) and caught.value.row == row


def test_a_function_that_forges_answers(tmp_path: Path) -> None:
    """It may write wherever its process can; what arrives is checked all the same."""
    source = (
        "import os\ndef score(p, r):\n    for pipe in range(3, 20):\n"
        "        try: os.write(pipe, LINE)\n        except OSError: pass\n    return [1, 1]\n"
    )
    for line, cause in (
        (b"garbage\n", "its answer is not a JSON object"),
        (b"x" * 50_000, "its answer is longer than"),
        (b"{}\n", "it answered something else than what it was asked"),
    ):
        with pytest.raises(ComponentError, match=cause):
            function_of(tmp_path, source.replace("LINE", repr(line)))(EPISODES)


def test_a_function_that_never_returns_is_ended_with_all_it_started(tmp_path: Path) -> None:
    function = function_of(
        tmp_path,
        "import subprocess, sys\n"
        "def score(prompts, responses):\n"
        "    if prompts[0] != 'hang': return [1] * len(prompts)\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import threading; threading.Event().wait()'])\n"
        f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "    while True: pass\n",
        timeout=1.0,
    )
    process = function._process
    with pytest.raises(ComponentError, match="it did not answer within 1 s, so its process was ended"):
        function(Episodes(["hang"], ["r"], [True], [1]))
    assert process is not None and not psutil.pid_exists(process.pid)
    grandchild = int((tmp_path / "pid").read_text())
    wait_until(lambda: gone(grandchild))
    assert scores(function) == [1.0, 1.0]  # by a fresh process


def test_the_whole_message_names_component_prompt_and_cause(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rewards.py"
    file.write_text("def score(prompts, responses):\n    return [1.0] * (len(prompts) - 1) + [None if prompts[-1] == 'how' else 1 / 0]\n")
    settings = RewardConfig.model_validate({"components": [{"kind": "python", "file": str(file), "name": "mine"}]})
    scorer = build_scorer(settings, CPU, lambda text, fraction: None, permissions_from_flags([str(file)], []))
    with pytest.raises(RewardError) as caught:
        scorer(EPISODES)
    expected = "reward component mine: it gave None, which is not a number for the prompt 'how' and the response 'c'"
    assert str(caught.value) == expected
    with pytest.raises(RewardError) as caught:
        scorer(Episodes(["one", "two"], ["a", "b"], [True] * 2, [1] * 2))
    assert str(caught.value) == (
        "reward component mine: it raised ZeroDivisionError: division by zero (line 2); "
        "it was scoring the batch of 2 responses, the first to the prompt 'one'"
    )
    log = capfd.readouterr().err
    assert f'File "{file}", line 2, in score' in log and CHILD.name not in log  # the trace shows the person's own lines alone


@pytest.mark.parametrize(
    ("source", "settings", "field", "part"),
    [
        ("def other(p, r): return []", {}, "function", "defines no score; it must, at its top level"),
        ("def f():\n    def score(p, r): return []", {}, "file", "it has no function called score"),
        ("1 / 0\ndef score(p, r): return []", {}, "file", "it raised ZeroDivisionError: division by zero (line 1)"),
        ("def score(:", {}, "file", "is not valid Python"),
        ("def score(p, r): return []\nimport os; os._exit(3)", {}, "file", "its process is gone: it ended with exit code 3"),
    ],
)
def test_a_file_that_gives_no_function(tmp_path: Path, source: str, settings: dict[str, Any], field: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        function_of(tmp_path, source, **settings)
    (problem,) = caught.value.problems
    assert problem.field == f"reward.components.0.{field}" and part in problem.message


def test_only_files_of_the_list(tmp_path: Path) -> None:
    for name in ("allowed.py", "other.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'was-run')!r}, 'w')\ndef score(p, r): return [1] * len(p)")
    allowed = permissions_from_flags([str(tmp_path / "allowed.py")], [])
    (tmp_path / "link.py").symlink_to(tmp_path / "other.py")
    for file in (str(tmp_path / "other.py"), str(tmp_path / "link.py"), "", str(tmp_path / "none.py")):
        with pytest.raises(ConfigError, match="--allow-custom-rewards|name the Python file"):
            PythonFunction(PythonReward(file=file), allowed, "reward.components.0")
    with pytest.raises(ConfigError, match="is not allowed here"):
        PythonFunction(PythonReward(file=str(tmp_path / "allowed.py")), Permissions(), "reward.components.0")
    assert not (tmp_path / "was-run").exists()
    PythonFunction(PythonReward(file=str(tmp_path / "x" / ".." / "allowed.py")), allowed, "reward.components.0")
    assert (tmp_path / "was-run").exists()


def test_a_file_that_never_finishes_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_function, "START_SECONDS", 0.5)
    with pytest.raises(ConfigError, match="it did not answer within 0.5 s"):
        function_of(tmp_path, "import threading\nthreading.Event().wait()\ndef score(p, r): return []")


# --- it is not left behind -----------------------------------------------------------------------------------------------------


def test_it_goes_with_its_owner(tmp_path: Path) -> None:
    function = function_of(tmp_path, "def score(p, r): return [1] * len(p)")
    assert function._process is not None
    pid = function._process.pid
    assert os.getpgid(pid) == pid != os.getpgid(0)  # a process group of its own
    assert psutil.pid_exists(pid)
    del function
    gc.collect()
    assert not psutil.pid_exists(pid)


def test_a_stuck_function_ends_when_the_other_side_is_gone(tmp_path: Path) -> None:
    """The engine may be killed and tidy up nothing: its end of the pipe closes all the same."""
    file = tmp_path / "rewards.py"
    file.write_text("def score(p, r):\n    while True: pass\n")
    child = subprocess.Popen(
        [sys.executable, "-P", str(CHILD), str(file), "score"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdin is not None and child.stdout is not None
    assert json.loads(child.stdout.readline()) == {"ready": True, "names": []}
    child.stdin.write(b'{"prompts": ["p"], "responses": ["r"], "extra": {}, "number": 1}\n')
    child.stdin.close()
    assert child.wait(20) == -signal.SIGKILL
    child.stdout.close()
